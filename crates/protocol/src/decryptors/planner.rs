//! Assigns clients to units, and remembers what they are sent.

use std::collections::{BTreeMap, BTreeSet};

use secsv_federation::{Coalition, RoundId};

use super::PlanError;
use super::groups::{OwnerGroup, OwnerGroups, max_owners};
use super::knowledge::knowing;
use super::ledger::{Ledger, Part};
use super::partners::{Partners, turned};
use super::search::Search;
use crate::rules::Protocol;

use super::unit::{Casting, Network, Reading, SeenStages, Unit, UnitRoles};

/// Decides who decrypts what. All roles of a federation come from one planner, because a rule binds everything
/// that was ever sent. It is deterministic: the same calls give the same roles.
#[derive(Clone, Debug)]
pub struct Planner {
    protocol: Protocol,
    network: Network,
    groups: OwnerGroups,
    ledger: Ledger,
    participants: BTreeMap<RoundId, Coalition>,
    planned: BTreeMap<(RoundId, usize), BTreeSet<Coalition>>,
    /// What each client reads of each group's samples.
    readings: BTreeSet<(usize, usize, Reading)>,
}

impl Planner {
    /// For these groups of test sets, tested with one network by one protocol.
    pub fn new(groups: OwnerGroups, protocol: Protocol, network: Network) -> Result<Self, PlanError> {
        let clients = groups.clients();
        let most = max_owners(clients, network)?;
        if let Some(owners) = groups.iter().map(|group| group.block().len()).find(|&owners| owners > most) {
            return Err(PlanError::GroupTooLarge { owners, most });
        }
        Ok(Self {
            protocol,
            network,
            groups,
            ledger: Ledger::new(clients),
            participants: BTreeMap::new(),
            planned: BTreeMap::new(),
            readings: BTreeSet::new(),
        })
    }

    /// The owners of the unit's group whose samples are tested securely. The others know the model and test it
    /// on their samples themselves; if nobody is left there is nothing to assign.
    pub fn secure_owners(&self, unit: Unit) -> Result<Coalition, PlanError> {
        let owners = self.checked_group(unit)?.owners();
        Ok(owners.difference(knowing(owners, unit.coalition, unit.participants)))
    }

    /// Assigns every role of a unit to clients who are not away, and enters the layer-1 replies in the ledger.
    pub fn assign(&mut self, unit: Unit, away: Coalition) -> Result<UnitRoles, PlanError> {
        let Unit { round, group, coalition, .. } = unit;
        if self.secure_owners(unit)?.is_empty() {
            return Err(PlanError::NothingToTest { round, coalition });
        }
        if self.planned.get(&(round, group)).is_some_and(|planned| planned.contains(&coalition)) {
            return Err(PlanError::AlreadyPlanned { round, group, coalition });
        }
        let seen = SeenStages::nothing(self.network.stages());
        let casting = self.cast(unit, away, &seen, None)?;
        self.participants.insert(round, unit.participants);
        self.planned.entry((round, group)).or_default().insert(coalition);
        Ok(UnitRoles { unit, casting, seen })
    }

    /// Gives the roles (of this planner) of clients who are away to others. `sent` says how many times features were sent to a
    /// decryptor already: the layers in turn (a GRU with all its steps is one), then the differences to count.
    /// What was sent binds even if no answer came; clients not away keep what they were sent; roles that were
    /// sent nothing may change. After an error the roles are what they were.
    pub fn replace(&mut self, roles: &mut UnitRoles, sent: usize, away: Coalition) -> Result<(), PlanError> {
        roles.seen.add(&roles.casting, sent);
        roles.casting = self.cast(roles.unit, away, &roles.seen, Some((&roles.casting, sent)))?;
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

    /// The first participants behind a group's block, in the order in which clients are asked.
    pub(crate) fn first_asked(&self, group: usize, participants: Coalition, most: usize) -> Coalition {
        let block = self.groups.get(group).map(|group| group.block()).unwrap_or_default();
        let mut order: Vec<_> = participants.members().collect();
        order.sort_by_key(|&client| turned(client, self.groups.clients(), block));
        order.into_iter().take(most).collect()
    }

    /// What was planned so far: a client, an owner whose samples it reads about, and what it reads.
    pub fn readings(&self) -> impl Iterator<Item = (usize, usize, Reading)> + '_ {
        self.readings.iter().flat_map(|&(client, group, reading)| {
            let owners = self.groups.get(group).map(|group| group.owners()).unwrap_or_default();
            owners.members().map(move |owner| (client, owner, reading))
        })
    }

    fn checked_group(&self, unit: Unit) -> Result<OwnerGroup, PlanError> {
        let Unit { round, participants, group, coalition } = unit;
        let everyone = Coalition::first(self.groups.clients());
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
        seen: &SeenStages,
        old: Option<(&Casting, usize)>,
    ) -> Result<Casting, PlanError> {
        let search = self.search(unit, away, seen, old)?;
        let Some(casting) = search.run() else { return Err(self.why_nobody(unit, away, seen, old)) };
        let first = Some(casting.holders[0]).filter(|&first| search.kept(0) != Some(first));
        let gates = casting.gates.filter(|&gates| search.kept_gates() != Some(gates));
        let replies: Vec<_> = [(Part::FirstStep, first), (Part::LaterSteps, gates)]
            .into_iter()
            .filter_map(|(part, client)| Some(search.reply(part, client?)))
            .collect();
        for reply in replies {
            self.ledger.record(reply)?;
        }
        let read = casting.readings().map(|(client, reading)| (client, unit.group, reading));
        self.readings.extend(read);
        Ok(casting)
    }

    fn search<'a>(
        &'a self,
        unit: Unit,
        away: Coalition,
        seen: &'a SeenStages,
        old: Option<(&'a Casting, usize)>,
    ) -> Result<Search<'a>, PlanError> {
        let group = self.checked_group(unit)?;
        let clients = self.groups.clients();
        Ok(Search {
            rules: self.protocol.rules(),
            network: self.network,
            clients,
            unit,
            owners: group.owners(),
            block: group.block(),
            knowing: knowing(Coalition::first(clients), unit.coalition, unit.participants),
            away,
            partners: Partners::new(clients, unit.participants, group.block()),
            seen,
            old,
        })
    }

    /// Tells whether somebody who is away would help.
    fn why_nobody(
        &self,
        unit: Unit,
        away: Coalition,
        seen: &SeenStages,
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
