//! Two servers and the clients of a run test one coalition under SecSV: roles take messages and return messages, and whoever
//! runs them delivers. `secsv train --dataset breast-cancer --clients 4 --out run`, then
//! `cargo run -p secsv-evaluation --example two_servers -- run`.

use std::{collections::VecDeque, env, error::Error, sync::Arc};

use rand::{TryRngCore as _, rngs::OsRng};
use secsv_evaluation::{client_inputs, executor::settle};
use secsv_federation::{Coalition, RoundId, RunDirectory, SampleSet};
use secsv_protocol::{
    Auxiliary, Client, PartyId, Preset, Principal, Seed, TestRequest,
    decryptors::Protocol,
    role::{Incoming, Outgoing, Role},
    session::{Federation, Matmul, Settings, typical_costs},
};

/// Has a role take a message; returns what it sends.
fn take<R: Role>(role: &mut R, message: Incoming) -> Result<Vec<Outgoing>, secsv_protocol::Error> {
    let effects = role.handle(message)?;
    settle(role, effects)
}

fn main() -> Result<(), Box<dyn Error>> {
    let run = RunDirectory::open(env::args_os().nth(1).ok_or("usage: two_servers RUN")?)?;
    run.check()?;
    let (protocol, preset, matmul) = (Protocol::SecSv, Preset::Standard, Matmul::Packed);
    let settings = Settings {
        protocol,
        preset,
        matmul,
        always_skips: false,
        whole_rounds: false,
        hidden: Default::default(),
        by_class: false,
    };
    let participants = |round| run.participants(round);
    let federation = Arc::new(Federation::new(run.spec(), run.architecture(), participants, settings)?);
    let inputs = client_inputs(&run)?;
    let samples = inputs.iter().map(|input| input.test_set.len()).sum();

    let fresh_seed = || Seed::random(&mut OsRng.unwrap_err());
    let mut principal = Principal::new(federation.clone(), Some(typical_costs(preset)), fresh_seed());
    let mut auxiliary = Auxiliary::new(federation.clone(), fresh_seed());
    let (mut clients, mut mail, mut sent) = (Vec::new(), VecDeque::new(), 0);
    let from = |party: PartyId| move |message: Outgoing| (party, message);
    for (position, input) in inputs.into_iter().enumerate() {
        let mut client = Client::new(federation.clone(), position, input, fresh_seed());
        let effects = client.start();
        mail.extend(settle(&mut client, effects)?.into_iter().map(from(PartyId::Client(position))));
        clients.push(client);
    }
    // The model of the first two clients in the first round, on the samples of all.
    let request = TestRequest::new(RoundId(1), Coalition::first(2), SampleSet::all(samples));
    let (_, effects) = principal.request(request)?;
    mail.extend(settle(&mut principal, effects)?.into_iter().map(from(PartyId::Principal)));
    while let Some((sender, Outgoing { to, kind, content })) = mail.pop_front() {
        let message = Incoming::new(sender, kind, content.to_vec());
        sent += 1;
        let outbox = match to {
            PartyId::Principal => take(&mut principal, message)?,
            PartyId::Auxiliary => take(&mut auxiliary, message)?,
            PartyId::Client(position) => take(&mut clients[position], message)?,
        };
        mail.extend(outbox.into_iter().map(from(to)));
    }
    for (_, results) in principal.take_results() {
        println!("{} of {samples} samples right, after {sent} messages", results[0].correct);
    }
    Ok(())
}
