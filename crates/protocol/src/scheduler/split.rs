//! How a test is cut: what owners test themselves, and units for everybody else.

use std::collections::BTreeMap;

use secsv_federation::{Coalition, SampleSet};

use super::TestRequest;
use crate::{
    Error,
    decryptors::knowing,
    message::{TestPlan, UnitPart, UnitPlan},
    session::Session,
    test_id::TestId,
};

/// A test, cut.
pub(crate) struct SplitTest {
    /// For each owner the models it knows: numbers of their coalitions, and which of its own samples to test.
    pub own: BTreeMap<usize, Vec<(usize, SampleSet)>>,
    /// Groups and numbers of coalitions that are tested securely.
    pub secure: Vec<(usize, usize)>,
    /// Who tests them.
    pub plan: TestPlan,
}

/// Cuts a test. `roles` says who tests a coalition on a group's samples. Coalitions with the same decryptor share a unit.
pub(crate) fn split_by_known_models(
    session: &Session,
    test: TestId,
    request: &TestRequest,
    mut roles: impl FnMut(Coalition, usize) -> Result<UnitPlan, Error>,
) -> Result<SplitTest, Error> {
    let TestRequest { round, coalitions, .. } = request;
    let participants = session.federation.participants(*round);
    let plan = TestPlan { test, round: *round, units: Vec::new() };
    let mut cut = SplitTest { own: BTreeMap::new(), secure: Vec::new(), plan };
    for (index, group) in session.groups.iter().enumerate() {
        let asked = session.in_group(index, &request.samples);
        let mut units: BTreeMap<UnitPart, UnitPlan> = BTreeMap::new();
        for (number, &coalition) in coalitions.iter().enumerate() {
            // Models an owner knows it tests itself (SECURITY.md, who decrypts what).
            let knowing = knowing(group.owners, coalition, participants);
            let samples = session.without_owners(index, &asked, knowing);
            for owner in knowing.members() {
                let places = group.places(owner);
                let mut own = SampleSet::none(places.len());
                places.clone().filter(|&p| asked.contains(p)).for_each(|p| own.insert(p - places.start));
                if !own.is_empty() {
                    cut.own.entry(owner).or_default().push((number, own));
                }
            }
            if samples.is_empty() {
                continue;
            }
            cut.secure.push((index, number));
            let unit = roles(coalition, index)?;
            let part = part(request, &unit);
            match units.get_mut(&part) {
                Some(known) => {
                    known.samples.union_with(&samples);
                    known.coalitions.push(coalition);
                }
                None => {
                    units.insert(part, UnitPlan { part, samples, coalitions: vec![coalition], ..unit });
                }
            }
        }
        cut.plan.units.extend(units.into_values());
    }
    Ok(cut)
}

/// Whether some of the samples are not their owners' to test.
pub(super) fn is_secure(session: &Session, request: &TestRequest) -> bool {
    let participants = session.federation.participants(request.round);
    session.groups.iter().enumerate().any(|(index, group)| {
        let asked = session.in_group(index, &request.samples);
        request.coalitions.iter().any(|&coalition| {
            let knowing = knowing(group.owners, coalition, participants);
            !session.without_owners(index, &asked, knowing).is_empty()
        })
    })
}

/// Which of a group's units a coalition is in.
pub(super) fn part(request: &TestRequest, unit: &UnitPlan) -> UnitPart {
    let first = unit.chain.first().filter(|_| request.coalitions.len() > 1);
    first.map_or(UnitPart::WHOLE, |&client| UnitPart::Decryptor(client))
}
