//! Rounds that are valued while training goes on: each is a session, and together they are the whole run bit for bit.

mod processes;
mod training;

use std::{fs, time::Duration};

use secsv_evaluation::EvaluationResult;
use secsv_federation::RoundId;
use secsv_node::{record::SessionEntry, verify::verify};

use crate::{federation::CLIENTS, process::parties};
use processes::Followers;
use training::{BAD, Training};

/// Values appear round after round; a killed principal, a killed auxiliary and a killed client come back; files that come again change
/// nothing, whatever they say. The sum is that of the whole run to the last bit, and logs fit.
#[test]
fn rounds_add_up_to_the_whole_run_bit_for_bit() {
    let training = Training::new(4);
    let mut followers = Followers::new(&training, Duration::from_secs(60));
    followers.start_all();
    training.round(1, "");
    followers.wait_for(1);
    let first = followers.values_file(1);

    // The same file again, and at the principal another one under its name.
    training.round(1, "");
    training.say("principal", 1, &training.file(1, &["a", "b", "c", "d"], ""));
    followers.wait_until("a refusal", |f| {
        f.log("principal").contains("clients.e: expected weight 24 as before, found 0")
    });

    training.round(2, "");
    followers.wait_until("a session of round 2", |f| {
        f.state("principal").join("rounds/0002/journal.redb").exists()
    });
    for party in ["principal", "c", "auxiliary"] {
        followers.kill(party);
        // Training goes on meanwhile.
        if party == "c" {
            training.round(3, "");
        }
        followers.start(party);
    }
    followers.wait_for(3);
    let page = followers.page("/");
    assert!(page.contains("Values so far") && page.matches("<polyline").count() == CLIENTS.len(), "{page}");
    let status = followers.page("/status.json");
    assert!(status.contains("\"live\":{\"rounds\":[{\"round\":1,\"values\":{\"a\":"), "{status}");
    training.round(4, "last = true\n");
    followers.finish();

    let expected = training.expected();
    let results: Vec<EvaluationResult> = (1..=4).map(|round| followers.result(round)).collect();
    for (result, round) in results.iter().zip(1u32..) {
        let of_round = |utility: &&secsv_evaluation::UtilityResult| utility.round == RoundId(round);
        assert_eq!(result.utilities, expected.utilities.iter().filter(of_round).cloned().collect::<Vec<_>>());
        assert_eq!(result.ssv, [expected.ssv[round as usize - 1].clone()]);
        followers.assert_told(round, result);
    }
    assert_eq!(followers.totals(), expected.fsv, "to the last bit");
    assert_eq!(followers.values_file(1), first, "a round that came again is not valued again");
    let worst = expected.fsv.iter().min_by(|a, b| a.1.total_cmp(b.1)).unwrap();
    assert_eq!(worst.0.as_str(), BAD);

    println!("seconds from a round's file to its values: {:?}", followers.seconds());

    for round in 1..=4 {
        let states: Vec<_> =
            parties().iter().map(|party| followers.state(party).join(format!("rounds/{round:04}"))).collect();
        let verification = verify(&states, None).unwrap();
        assert!(verification.findings.is_empty(), "round {round}: {:?}", verification.findings);
        assert!(verification.values > 0 && verification.frames_unmatched == 0);
    }
    assert_one_session(&training);
}

/// All rounds are one session in the record of a silo: each once, and no word was asked for.
fn assert_one_session(training: &Training) {
    let record = fs::read_to_string(training.site("a").join("clients/a/sessions.jsonl")).unwrap();
    let entries: Vec<SessionEntry> = record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rounds: Vec<_> = entries.iter().map(|entry| entry.round.unwrap().0).collect();
    assert_eq!(rounds, [1, 2, 3, 4]);
    assert!(entries.iter().all(|entry| entry.federation == entries[0].federation));
    let states: std::collections::BTreeSet<_> = entries.iter().map(|entry| &entry.state).collect();
    assert_eq!(states.len(), 4, "a seed of its own for each round");
}

/// A model that comes late is waited for, one that never comes is given up on, a gap too; a client leaves; and where two parties have other
/// words for a round, the round is refused by name, and nothing else.
#[test]
fn late_missing_and_differing_rounds_block_nobody_longer_than_told() {
    let training = Training::new(7);
    let late = Duration::from_secs(4);
    let mut followers = Followers::new(&training, late);
    followers.start_all();

    // One silo's model comes when everybody waits for it.
    CLIENTS[..4].iter().for_each(|silo| training.model(1, silo));
    training.everybody(1, &training.file(1, &CLIENTS, ""));
    followers.wait_until("a silo that waits", |f| f.log("e").contains("round-0001.safetensors"));
    assert!(!followers.values(1).exists());
    training.model(1, "e");
    followers.wait_for(1);

    // One never comes.
    CLIENTS[..4].iter().for_each(|silo| training.model(2, silo));
    training.everybody(2, &training.file(2, &CLIENTS, ""));
    // Round 3 is not said at all, and round 4 begins with the model after it.
    training.global(3);
    training.round(4, "");
    followers.wait_for(4);
    let missed = followers.missed(2);
    assert!(missed.contains("waited 4 s") && missed.contains("introductions of e"), "{missed}");
    assert!(followers.missed(3).contains("rounds/0003.toml"), "{}", followers.missed(3));
    let alone = training.alone(4, &CLIENTS);
    assert_eq!(followers.result(4).fsv, alone.fsv);

    // A client leaves for good, with its samples: what everybody's model before gave is not known of the others' samples.
    followers.kill("e");
    training.global(4);
    CLIENTS[..4].iter().for_each(|silo| training.model(5, silo));
    let rest: Vec<&str> = CLIENTS[..4].to_vec();
    training.everybody(5, &training.file(5, &rest, "without = [\"e\"]\n"));
    followers.wait_for(5);
    assert_eq!(followers.result(5).fsv, training.alone(5, &rest).fsv);

    // Two parties have other words for a round.
    CLIENTS[..4].iter().for_each(|silo| training.model(6, silo));
    let file = training.file(6, &rest, "without = [\"e\"]\n");
    training.everybody(6, &file);
    training.say("b", 6, &file.replace("id = \"d\"", "id = \"d\"\ntrain_size = 7"));
    followers.wait_until("a refusal", |f| f.missed_file(6).exists());
    let missed = followers.missed(6);
    let expected = "rounds/0006.toml differs: clients.d: expected weight 23, found weight 7 there";
    assert!(missed.contains(expected), "{missed}");

    // The process is as it was.
    training.global(6);
    CLIENTS[..4].iter().for_each(|silo| training.model(7, silo));
    training.everybody(7, &training.file(7, &rest, "without = [\"e\"]\nlast = true\n"));
    followers.finish();
    assert_eq!(followers.result(7).fsv, training.alone(7, &rest).fsv);
    // Nothing secret of a round that was given up stays.
    for party in ["principal", "auxiliary", "a"] {
        assert!(!followers.state(party).join("rounds/0002/journal.redb").exists(), "{party}");
    }
}
