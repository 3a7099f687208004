//! Units that a party knows of, from the announcements it received or sent.

use std::collections::BTreeMap;

use super::{SeenMessage, SeenPlan};
use crate::{
    Error,
    message::{Kind, Message as _, TestPlan, UnitId},
    program::{Program, Receive, Then},
    session::{OwnerPart, Session},
    unit::{UnitContext, check_plan},
};

/// Tests that were announced.
#[derive(Default)]
pub(crate) struct Announced {
    pub contexts: BTreeMap<UnitId, UnitContext>,
    pub plans: Vec<SeenPlan>,
}

/// The tests announced in some messages, each once.
pub(crate) fn announced(session: &Session, messages: &[SeenMessage]) -> Result<Announced, Error> {
    let mut found = Announced::default();
    for message in messages.iter().filter(|message| message.kind == Kind::Test) {
        let malformed = |why| Error::Malformed { from: message.from, kind: Kind::Test, why };
        let plan = TestPlan::decode(message.content(), &()).map_err(malformed)?;
        check_plan(session, &plan).map_err(malformed)?;
        for context in UnitContext::of(session, &plan)? {
            if found.contexts.contains_key(&context.id) {
                continue;
            }
            found.plans.push(SeenPlan {
                test: plan.test.to_wire(),
                round: plan.round,
                rounds: context.rounds.clone(),
                unit: context.plan.clone(),
                samples: samples(session, &context),
            });
            found.contexts.insert(context.id, context);
        }
    }
    Ok(found)
}

/// A unit's samples by owner.
fn samples(session: &Session, context: &UnitContext) -> Vec<(usize, Vec<usize>)> {
    let parts = session.groups[context.plan.group].parts.iter();
    let of_owner = |part: &OwnerPart| {
        let places = part.places.clone().filter(|place| context.plan.samples.contains(*place));
        (part.owner, places.map(|place| place - part.places.start).collect::<Vec<_>>())
    };
    parts.map(of_owner).filter(|(_, samples)| !samples.is_empty()).collect()
}

/// The step of a recurrent unit that a step belongs to.
pub(crate) fn time_step_of(program: &Program, step: usize) -> Option<usize> {
    let decryption = program.steps.get(step)?;
    match (&decryption.then, decryption.receives.first()) {
        (Then::FirstState { .. }, _) => Some(0),
        (Then::Gates { time_step }, _) => Some(*time_step),
        (_, Some(Receive::Update { gates, .. })) => match program.steps.get(*gates)?.then {
            Then::Gates { time_step } => Some(time_step),
            _ => None,
        },
        _ => None,
    }
}
