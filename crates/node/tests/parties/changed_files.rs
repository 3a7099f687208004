//! A client that is started again with other files: what it encoded is covered by randomness that serves once, so it is refused
//! before it says anything; with the files it began with it goes on.

use std::{fs, io::ErrorKind, net::TcpListener, path::PathBuf, time::Duration};

use secsv_evaluation::EvaluationResult;
use secsv_federation::{RunDirectory, RunWriter, Tensor, TestSet, Weights};
use secsv_node::{
    Error,
    journal::JournalError,
    kit::Kit,
    process::{NodeOptions, PrincipalOptions, run_auxiliary, run_client, run_principal},
};
use secsv_protocol::{PartyId, decryptors::Protocol};

use crate::{
    address::free_address,
    federation::{Fixture, Recipe, accepting},
    process::{Processes, parties},
};

/// The same run in which something is changed by a little.
struct Changed<'a> {
    fixture: &'a Fixture,
    name: &'static str,
    samples: bool,
    local: bool,
    global: bool,
    initial: bool,
}

fn nudged(model: &Weights) -> Weights {
    let nudge = |(name, tensor): (&str, &Tensor)| {
        let mut values = tensor.singles().into_owned();
        // So little that aggregates are still the means of local models.
        values[0] += 1.0 / 65536.0;
        (name.to_owned(), Tensor::new(tensor.shape().to_vec(), values).unwrap())
    };
    model.iter().map(nudge).collect()
}

impl Changed<'_> {
    fn write(&self) -> PathBuf {
        let (run, path) = (self.fixture.run(), self.fixture.path().join(self.name));
        let writer = RunWriter::create(&path, run.spec()).unwrap();
        let maybe = |model: Weights, is_changed: bool| if is_changed { nudged(&model) } else { model };
        writer.initial_model(&maybe(run.initial_model().unwrap(), self.initial)).unwrap();
        for id in run.spec().ids() {
            let set = run.test_set(id).unwrap();
            let (mut x, is_own) = (set.features().to_vec(), id.as_str() == "c");
            if self.samples && is_own {
                // Towards zero: the range that was published still holds.
                x[0] *= 0.5;
            }
            let set = TestSet::new(set.input().to_vec(), x, set.labels().to_vec()).unwrap();
            writer.test_set(id, &set).unwrap();
            for round in run.spec().round_ids() {
                let model = maybe(run.local_model(id, round).unwrap(), self.local && is_own && round.0 == 2);
                writer.local_model(id, round, &model).unwrap();
            }
        }
        for round in run.spec().round_ids() {
            let model = maybe(run.global_model(round).unwrap(), self.global && round.0 == 1);
            writer.global_model(round, &model).unwrap();
        }
        writer.finish().unwrap();
        path
    }
}

/// A restart with a changed test set, local, global or initial model is refused, and names the file; nobody is dialled. With the
/// same files the run ends with the values of one that was not disturbed.
fn check(recipe: &Recipe) {
    let fixture = Fixture::new(recipe);
    let mut processes = Processes::new(&fixture);
    processes.start_all();
    let state = fixture.options("c").state;
    processes.wait_until("the client has sent something", || {
        fs::read_to_string(state.join("audit.jsonl")).is_ok_and(|log| log.lines().count() > 4)
    });
    let everybody = parties();
    for party in &everybody {
        processes.kill(party);
    }
    let addresses = [PartyId::Principal, PartyId::Auxiliary]
        .map(|server| fixture.kit("c").address(server).unwrap().to_string());
    let dialled = addresses.map(|address| TcpListener::bind(address).unwrap());
    let changed = |name, samples, local, global, initial| Changed {
        fixture: &fixture,
        name,
        samples,
        local,
        global,
        initial,
    };
    let cases = [
        (changed("samples", true, false, false, false), "clients/c/test.safetensors"),
        (changed("local", false, true, false, false), "clients/c/round-0002.safetensors"),
        (changed("global", false, false, true, false), "global/round-0001.safetensors"),
        (changed("initial", false, false, false, true), "initial.safetensors"),
    ];
    let before = fs::read(state.join("audit.jsonl")).unwrap();
    for (change, file) in cases {
        let run = RunDirectory::open(change.write()).unwrap();
        let kit = fixture.kit("c");
        let options = accepting(&kit, fixture.options("c"));
        let refused = run_client(kit, &run, &options).unwrap_err();
        assert!(matches!(refused, Error::Journal(JournalError::OtherFile { .. })), "{refused}");
        assert!(refused.is_bad_input());
        let message = refused.to_string();
        assert!(message.contains("these are not the files this state was begun with"), "{message}");
        assert!(message.contains(file), "{message}");
    }
    assert_eq!(fs::read(state.join("audit.jsonl")).unwrap(), before, "nothing was said");
    for listener in dialled {
        listener.set_nonblocking(true).unwrap();
        let nobody = listener.accept().map(|(_, from)| from).map_err(|error| error.kind());
        assert_eq!(nobody, Err(ErrorKind::WouldBlock), "it has dialled");
    }
    processes.start_all();
    processes.finish();
}

#[test]
fn a_state_goes_on_with_the_files_it_was_begun_with_alone() {
    check(&Recipe { rounds: 2, ..Recipe::default() });
}

/// What an owner deals is of its samples, and masks serve once.
#[test]
fn a_state_of_blindsv_goes_on_with_the_files_it_was_begun_with_alone() {
    check(&Recipe { protocol: Protocol::BlindSv, rounds: 2, hidden: Some(3), ..Recipe::default() });
}

/// Another setting is another federation file: its kits do not open states of the one before.
fn check_other_kits(recipe: &Recipe) {
    let fixture = Fixture::new(recipe);
    fixture.begin_states();
    let other = fixture.provision("other", fixture.principal.clone(), free_address());
    for party in parties() {
        let start = || {
            let kit = Kit::open(&other.join(&party)).unwrap();
            let options = fixture.options(&party);
            let refused = match kit.own {
                PartyId::Principal => start_principal(kit, options).err(),
                PartyId::Auxiliary => run_auxiliary(kit, &options).err(),
                PartyId::Client(_) => {
                    let options = accepting(&kit, options);
                    run_client(kit, &fixture.run(), &options).err()
                }
            };
            refused.unwrap()
        };
        // A process that another test forks holds every lock until it becomes another program.
        let is_free = |error: &Error| !matches!(error, Error::Journal(JournalError::InUse { .. }));
        let refused = std::iter::repeat_with(start).take(100).find(is_free).unwrap();
        let message = refused.to_string();
        assert!(
            refused.is_bad_input() && message.contains("federation.toml: these are not the files"),
            "{party}: {message}"
        );
    }
}

fn start_principal(kit: Kit, node: NodeOptions) -> Result<EvaluationResult, Error> {
    let (away_after, wait_to_deliver) = (Duration::from_secs(1), Duration::from_secs(1));
    let options = PrincipalOptions { node, away_after, wait_to_deliver, made_by: "a test".to_owned() };
    run_principal(kit, &options, |_| {}, |_| Ok(()))
}

#[test]
fn a_state_goes_on_with_the_settings_it_was_begun_with_alone() {
    check_other_kits(&Recipe::default());
}

#[test]
fn a_state_of_blindsv_goes_on_with_the_settings_it_was_begun_with_alone() {
    check_other_kits(&Recipe { protocol: Protocol::BlindSv, hidden: Some(3), ..Recipe::default() });
}
