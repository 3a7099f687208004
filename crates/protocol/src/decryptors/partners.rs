//! Which coalitions' layer-1 outputs a client may see.

use secsv_federation::Coalition;

use super::Part;

/// For every client, the coalitions it may take in one round, on the samples of one block of owners.
///
/// Why this keeps a client from the output of its own model, and why somebody is always left, is in the
/// documentation of the [module](super). It follows from the block and the participants alone, so it is the same in
/// every session over the same samples.
#[derive(Clone, Debug)]
pub(super) struct Partners {
    first_step: Vec<Reach>,
    later_steps: Vec<Reach>,
    core: Vec<usize>,
}

/// Which coalitions a client may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// None: it owns a sample of the group, or nobody else took part.
    Nothing,
    /// Those that it and this participant are both in or both out of.
    AgreeingWith(usize),
    /// All: it has no model in this round.
    Anything,
}

impl Partners {
    /// For `clients` clients.
    pub fn new(clients: usize, participants: Coalition, block: Coalition) -> Self {
        let reach = |client| if participants.contains(client) { Reach::Nothing } else { Reach::Anything };
        let start: Vec<_> = (0..clients).map(reach).collect();
        let outside = |client: &usize| !block.contains(*client);
        let mut order: Vec<_> = (0..clients).filter(outside).collect();
        order.sort_by_key(|&client| turned(client, clients, block));
        let (present, absent): (Vec<_>, Vec<_>) =
            order.into_iter().partition(|&client| participants.contains(client));
        let core = absent.into_iter().take(1).collect();
        let mut partners = Self { first_step: start.clone(), later_steps: start, core };
        let mates = participants.intersection(block);
        match (&present[..], mates.members().next()) {
            // Nobody to assign, or a single participant, whose model everybody knows.
            ([], _) | ([_], None) => {}
            (&[only], Some(mate)) => partners.pair_both(only, mate),
            (&[a, b], mate) => partners.pair_two(a, b, mate),
            _ => partners.close_cycle(&present),
        }
        for (mate, &partner) in mates.members().zip(present.iter().cycle()) {
            partners.pair_both(mate, partner);
        }
        partners
    }

    /// As few clients as can take everything among them, if there is a choice: an absent one, or the cycle.
    /// Everything should go to them, because whoever reads outputs can rebuild the samples.
    pub fn core(&self) -> &[usize] {
        &self.core
    }

    /// Who may take a coalition.
    pub fn takers(&self, part: Part, coalition: Coalition) -> Coalition {
        let reach = match part {
            Part::FirstStep => &self.first_step,
            Part::LaterSteps => &self.later_steps,
        };
        let takes = |&client: &usize| match reach[client] {
            Reach::Nothing => false,
            Reach::AgreeingWith(partner) => coalition.contains(client) == coalition.contains(partner),
            Reach::Anything => true,
        };
        (0..reach.len()).filter(takes).collect()
    }

    /// Three or more: a cycle of three, followed one way for the first step and the other way for the further
    /// ones. Everyone else goes with somebody of the cycle.
    fn close_cycle(&mut self, present: &[usize]) {
        let (cycle, others) = present.split_at(3);
        for (i, &client) in cycle.iter().enumerate() {
            let next = cycle[(i + 1) % 3];
            self.first_step[client] = Reach::AgreeingWith(next);
            self.later_steps[next] = Reach::AgreeingWith(client);
        }
        for (i, &other) in others.iter().enumerate() {
            self.pair_both(other, cycle[i % 3]);
        }
        if self.core.is_empty() {
            self.core = cycle.to_vec();
        }
    }

    /// Two outsiders took part, so a third is absent and takes anything, but only one of a GRU's two parts. Where
    /// the two disagree, one of them agrees with an owner, who closes a cycle of three without decrypting.
    fn pair_two(&mut self, a: usize, b: usize, owner: Option<usize>) {
        self.first_step[a] = Reach::AgreeingWith(b);
        self.first_step[b] = Reach::AgreeingWith(a);
        self.later_steps[a] = Reach::AgreeingWith(owner.unwrap_or(b));
        self.later_steps[b] = Reach::AgreeingWith(owner.unwrap_or(a));
    }

    fn pair_both(&mut self, client: usize, partner: usize) {
        self.first_step[client] = Reach::AgreeingWith(partner);
        self.later_steps[client] = Reach::AgreeingWith(partner);
    }
}

/// A client's place in the order that begins behind a block and ends with the block itself.
pub(super) fn turned(client: usize, clients: usize, block: Coalition) -> usize {
    let end = block.members().last().map_or(0, |last| last + 1);
    (client + clients - end) % clients
}
