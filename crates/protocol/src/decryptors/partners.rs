//! Which coalitions' layer-1 outputs a client may see.

use secsv_federation::Coalition;

use super::Part;

/// For every client, the coalitions it may take in one round for one owner group.
///
/// Why this keeps a client from the output of its own model, and why somebody is always left, is in the
/// documentation of the [module](super).
#[derive(Clone, Debug)]
pub(super) struct Partners {
    first_step: Vec<Reach>,
    later_steps: Vec<Reach>,
    core: Coalition,
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
    /// For `clients` clients. The order of the outsiders turns with `turn`, to spread the load.
    pub fn new(clients: usize, participants: Coalition, owners: Coalition, turn: usize) -> Self {
        let outside = |client: &usize| !owners.contains(*client);
        let absent = |client| outside(&client) && !participants.contains(client);
        let start: Vec<_> = (0..clients)
            .map(|client| if absent(client) { Reach::Anything } else { Reach::Nothing })
            .collect();
        let mut absent: Vec<_> = (0..clients).filter(|&client| start[client] == Reach::Anything).collect();
        turn_order(&mut absent, turn);
        let core = absent.first().copied().into_iter().collect();
        let mut partners = Self { first_step: start.clone(), later_steps: start, core };
        let mut present: Vec<_> = participants.members().filter(outside).collect();
        turn_order(&mut present, turn);
        let mut others: Vec<_> = participants.intersection(owners).members().collect();
        turn_order(&mut others, turn);
        match (&present[..], others.first()) {
            // Nobody to assign, or a single participant, whose model everybody knows.
            ([], _) | ([_], None) => {}
            (&[only], Some(&owner)) => partners.pair_both(only, owner),
            (&[a, b], owner) => partners.pair_two(a, b, owner.copied()),
            _ => partners.close_cycle(&present),
        }
        partners
    }

    /// As few clients as can take everything among them, if there is a choice: an absent one, or the cycle. What
    /// lets a client put together the outputs of a model it knows should go to them, who are others at every turn.
    pub fn core(&self) -> Coalition {
        self.core
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
            self.core = cycle.iter().copied().collect();
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

/// Begins with the next client at every turn.
fn turn_order(clients: &mut [usize], turn: usize) {
    if let Some(start) = turn.checked_rem(clients.len()) {
        clients.rotate_left(start);
    }
}
