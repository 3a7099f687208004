//! Two servers and the clients of a run test one coalition under SecSV: roles take messages and return messages, and whoever
//! runs them delivers. `secsv train --dataset breast-cancer --clients 4 --out run`, then
//! `cargo run -p secsv-evaluation --example two_servers -- run`.

use std::{collections::VecDeque, env, error::Error, sync::Arc};

use rand::{TryRngCore as _, rngs::OsRng};
use secsv_evaluation::client_inputs;
use secsv_federation::{Coalition, RoundId, RunDirectory, SampleSet};
use secsv_protocol::{
    Auxiliary, Client, PartyId, Preset, Principal, Seed, TestRequest,
    decryptors::Protocol,
    role::{Effects, Incoming, Meter, Outgoing, Phase, Probe, Role},
    session::{Federation, Matmul, Settings, typical_costs},
};

type Mail = VecDeque<(PartyId, Outgoing)>;

struct Silent;

impl Probe for Silent {
    fn enter(&mut self, _: Phase) {}
}

/// Runs the jobs of a role and posts what it sends.
fn settle<R: Role>(
    from: PartyId,
    role: &mut R,
    effects: Effects<R>,
    mail: &mut Mail,
) -> Result<(), Box<dyn Error>> {
    mail.extend(effects.outbox.into_iter().map(|message| (from, message)));
    for job in effects.jobs {
        let found = job(&mut Meter::new(&mut Silent))?;
        let effects = found(role)?;
        settle(from, role, effects, mail)?;
    }
    Ok(())
}

fn take<R: Role>(
    id: PartyId,
    role: &mut R,
    message: Incoming,
    mail: &mut Mail,
) -> Result<(), Box<dyn Error>> {
    let effects = role.handle(message)?;
    settle(id, role, effects, mail)
}

fn fresh_seed() -> Result<Seed, Box<dyn Error>> {
    let mut bytes = [0; 32];
    OsRng.try_fill_bytes(&mut bytes)?;
    Ok(Seed::from_bytes(bytes))
}

fn main() -> Result<(), Box<dyn Error>> {
    let run = RunDirectory::open(env::args_os().nth(1).ok_or("usage: two_servers RUN")?)?;
    run.check()?;
    let (protocol, preset, matmul) = (Protocol::SecSv, Preset::Standard, Matmul::Packed);
    let settings = Settings { protocol, preset, matmul, always_skips: false, whole_rounds: false };
    let participants = |round| run.participants(round);
    let federation = Arc::new(Federation::new(run.spec(), run.architecture(), participants, settings)?);
    let inputs = client_inputs(&run)?;
    let samples = inputs.iter().map(|input| input.test_set.len()).sum();

    let (mut mail, mut sent) = (Mail::new(), 0);
    let mut principal = Principal::new(federation.clone(), Some(typical_costs(preset)), fresh_seed()?);
    let mut auxiliary = Auxiliary::new(federation.clone(), fresh_seed()?);
    let mut clients = Vec::new();
    for (position, input) in inputs.into_iter().enumerate() {
        let mut client = Client::new(federation.clone(), position, input, fresh_seed()?);
        let effects = client.start();
        settle(PartyId::Client(position), &mut client, effects, &mut mail)?;
        clients.push(client);
    }
    // The model of the first two clients in the first round, on the samples of all.
    let request = TestRequest::new(RoundId(1), Coalition::first(2), SampleSet::all(samples));
    let (_, effects) = principal.request(request)?;
    settle(PartyId::Principal, &mut principal, effects, &mut mail)?;
    while let Some((from, Outgoing { to, kind, content })) = mail.pop_front() {
        let message = Incoming::new(from, kind, content.to_vec());
        sent += 1;
        match to {
            PartyId::Principal => take(to, &mut principal, message, &mut mail)?,
            PartyId::Auxiliary => take(to, &mut auxiliary, message, &mut mail)?,
            PartyId::Client(position) => take(to, &mut clients[position], message, &mut mail)?,
        }
    }
    for (_, results) in principal.take_results() {
        println!("{} of {samples} samples right, after {sent} messages", results[0].correct);
    }
    Ok(())
}
