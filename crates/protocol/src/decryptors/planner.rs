//! Assigns clients to units, and remembers what they are sent.

use std::collections::{BTreeMap, BTreeSet};

use secsv_federation::{Coalition, RoundId};

use super::attacks::{AttackRow, attack_table};
use super::groups::{OwnerGroup, OwnerGroups, max_owners};
use super::knowledge::knowing;
use super::ledger::{Ledger, Part};
use super::partners::Partners;
use super::search::Search;
use super::unit::{Casting, Network, Protocol, Seen, Unit, UnitRoles};
use super::{FirstLayer, PlanError};

/// Decides who decrypts what. All roles of a federation come from one planner, because a rule binds everything
/// that was ever sent. It is deterministic: the same calls give the same roles.
#[derive(Clone, Debug)]
pub struct Planner {
    protocol: Protocol,
    network: Network,
    groups: OwnerGroups,
    ledger: Ledger,
    load: Vec<u64>,
    /// Whether clients add up first-layer outputs that follow from others.
    adds_up: bool,
    /// First rounds of stretches, whose other rounds have the same roles.
    stretches: Vec<RoundId>,
    participants: BTreeMap<RoundId, Coalition>,
    planned: BTreeMap<(RoundId, usize), BTreeSet<Coalition>>,
    known_inputs: u64,
}

impl Planner {
    /// For these groups of test sets, tested with one network by one protocol.
    pub fn new(groups: OwnerGroups, protocol: Protocol, network: Network) -> Result<Self, PlanError> {
        let clients = groups.clients();
        let most = max_owners(clients, network)?;
        if let Some(owners) = groups.iter().map(|group| group.owners().len()).find(|&owners| owners > most) {
            return Err(PlanError::GroupTooLarge { owners, most });
        }
        Ok(Self {
            protocol,
            network,
            groups,
            ledger: Ledger::new(clients),
            load: vec![0; clients],
            adds_up: false,
            stretches: Vec::new(),
            participants: BTreeMap::new(),
            planned: BTreeMap::new(),
            known_inputs: 0,
        })
    }

    /// The same where clients add up first-layer outputs that follow from others: few of them should have replies of their
    /// own.
    #[must_use]
    pub fn adding_up(self, adds_up: bool) -> Self {
        Self { adds_up, ..self }
    }

    /// The same where rounds one after the other have the same roles: units are those of the first round, and count for so many.
    #[must_use]
    pub fn in_stretches(mut self, stretches: impl IntoIterator<Item = (RoundId, usize)>) -> Self {
        for (stretch, rounds) in stretches {
            self.stretches.push(stretch);
            self.ledger.count_for(stretch, rounds);
        }
        self
    }

    /// The owners of the unit's group whose samples are tested securely. The others know the model and test it
    /// on their samples themselves; if nobody is left there is nothing to assign.
    pub fn secure_owners(&self, unit: Unit) -> Result<Coalition, PlanError> {
        let owners = self.checked_group(unit)?.owners();
        Ok(owners.difference(knowing(owners, unit.coalition, unit.participants)))
    }

    /// Assigns every role of a unit to clients who are not away, and enters the layer-1 replies in the ledger.
    pub fn assign(&mut self, unit: Unit, away: Coalition) -> Result<UnitRoles, PlanError> {
        self.assign_one(unit, away, false)
    }

    /// The same, and whether the unit is `of_all` coalitions of a round, which will all be asked for. Then, if every client took part,
    /// the few who can take everything among them come to combine outputs into those of a model they know, whoever else
    /// decrypts as well (see the [module](super)): so nobody else does where they can.
    pub fn assign_one(&mut self, unit: Unit, away: Coalition, of_all: bool) -> Result<UnitRoles, PlanError> {
        let Unit { round, group, coalition, .. } = unit;
        if self.secure_owners(unit)?.is_empty() {
            return Err(PlanError::NothingToTest { round, coalition });
        }
        if self.planned.get(&(round, group)).is_some_and(|planned| planned.contains(&coalition)) {
            return Err(PlanError::AlreadyPlanned { round, group, coalition });
        }
        let seen = Seen::nothing(self.network.stages());
        let casting = self.cast(unit, away, &seen, None, of_all)?;
        self.participants.insert(round, unit.participants);
        self.planned.entry((round, group)).or_default().insert(coalition);
        let roles = UnitRoles { unit, casting, seen };
        self.known_inputs += u64::from(roles.input_nearly_known());
        Ok(roles)
    }

    /// Gives the roles (of this planner) of clients who are away to others. `sent` says how many times features were sent to a
    /// decryptor already: the layers in turn (a GRU with all its steps is one), then the differences to count.
    /// What was sent binds even if no answer came; clients not away keep what they were sent; roles that were
    /// sent nothing may change. After an error the roles are what they were.
    pub fn replace(&mut self, roles: &mut UnitRoles, sent: usize, away: Coalition) -> Result<(), PlanError> {
        let counted = roles.input_nearly_known();
        roles.seen.add(&roles.casting, sent);
        roles.casting = self.cast(roles.unit, away, &roles.seen, Some((&roles.casting, sent)), false)?;
        self.known_inputs += u64::from(!counted && roles.input_nearly_known());
        Ok(())
    }

    /// What was sent.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The owner groups.
    pub fn groups(&self) -> &OwnerGroups {
        &self.groups
    }

    /// Replies each client was given to decrypt, by position.
    pub fn load(&self) -> &[u64] {
        &self.load
    }

    /// Units in which a GRU's gate decryptor, who nearly knows the last hidden state, had to decrypt the layer
    /// that follows, for want of another client.
    pub fn nearly_known_inputs(&self) -> u64 {
        self.known_inputs
    }

    /// Which attacks are excluded for this federation, and what remains, given what was sent so far.
    pub fn attacks(&self, first_layer: FirstLayer) -> Vec<AttackRow> {
        attack_table(self.load.len(), self.network, self.known_inputs, &self.ledger.exposures(), first_layer)
    }

    fn checked_group(&self, unit: Unit) -> Result<OwnerGroup, PlanError> {
        let Unit { round, participants, group, coalition } = unit;
        let everyone = Coalition::first(self.load.len());
        for (found, expected) in [(participants, everyone), (coalition, participants)] {
            if !found.is_subset_of(expected) {
                return Err(PlanError::Strangers { round, found: found.difference(expected), expected });
            }
        }
        match self.participants.get(&round) {
            Some(&expected) if expected != participants => {
                Err(PlanError::ParticipantsChanged { round, expected, found: participants })
            }
            _ => self.groups.get(group),
        }
    }

    fn cast(
        &mut self,
        unit: Unit,
        away: Coalition,
        seen: &Seen,
        old: Option<(&Casting, usize)>,
        of_all: bool,
    ) -> Result<Casting, PlanError> {
        let mut search = self.search(unit, away, seen, old)?;
        search.of_all = of_all && unit.participants.len() == self.load.len();
        let Some(casting) = search.run() else { return Err(self.why_nobody(unit, away, seen, old)) };
        let first = Some(casting.holders[0]).filter(|&first| search.kept(0) != Some(first));
        let gates = casting.gates.filter(|&gates| search.kept_gates() != Some(gates));
        let replies: Vec<_> = [(Part::FirstStep, first), (Part::LaterSteps, gates)]
            .into_iter()
            .filter_map(|(part, client)| Some(search.reply(part, client?)))
            .collect();
        let later = 1..casting.holders.len();
        let later = later.map(|stage| (search.kept(stage), casting.holders[stage]));
        let later = later.filter_map(|(kept, holder)| (kept != Some(holder)).then_some(holder));
        let asked: Vec<_> = first.into_iter().chain(gates).chain(later).chain(casting.counter).collect();
        for reply in replies {
            self.ledger.record(reply)?;
        }
        for client in asked {
            self.load[client] += 1;
        }
        Ok(casting)
    }

    fn search<'a>(
        &'a self,
        unit: Unit,
        away: Coalition,
        seen: &'a Seen,
        old: Option<(&'a Casting, usize)>,
    ) -> Result<Search<'a>, PlanError> {
        let owners = self.checked_group(unit)?.owners();
        let clients = self.load.len();
        // Others decrypt in every stretch.
        let before = self.stretches.iter().filter(|stretch| **stretch < unit.round).count();
        let turn = if self.stretches.is_empty() { unit.round.0 as usize } else { before + 1 };
        let turn = turn.wrapping_add(unit.group);
        Ok(Search {
            protocol: self.protocol,
            network: self.network,
            unit,
            owners,
            knowing: knowing(Coalition::first(clients), unit.coalition, unit.participants),
            away,
            partners: Partners::new(clients, unit.participants, owners, turn),
            ledger: &self.ledger,
            load: &self.load,
            adds_up: self.adds_up,
            of_all: false,
            turn,
            seen,
            old,
        })
    }

    /// Tells whether somebody who is away would help.
    fn why_nobody(
        &self,
        unit: Unit,
        away: Coalition,
        seen: &Seen,
        old: Option<(&Casting, usize)>,
    ) -> PlanError {
        let helps = |away| self.search(unit, away, seen, old).is_ok_and(|search| search.run().is_some());
        let any: Coalition = away.members().filter(|&client| helps(away.without(client))).collect();
        if !any.is_empty() {
            return PlanError::Awaiting { clients: any, any: true };
        }
        if helps(Coalition::EMPTY) {
            return PlanError::Awaiting { clients: away, any: false };
        }
        let Unit { round, coalition, .. } = unit;
        let eligible = self
            .search(unit, Coalition::EMPTY, seen, old)
            .map(|search| search.outsiders())
            .unwrap_or_default();
        PlanError::NobodyLeft { round, coalition, eligible }
    }
}
