//! Right predictions of every coalition of every round of a run directory, in the clear, as JSON: for comparison with
//! another implementation (bench/peers/networks.py).

use secsv_federation::{
    CollectiveTestSet, Error, RoundId, RunDirectory, SampleSet,
    clear::{ClearRound, ModelParameters, correct_samples},
};

fn main() -> Result<(), Error> {
    for path in std::env::args().skip(1) {
        let run = RunDirectory::open(&path)?;
        run.check()?;
        let test_set = CollectiveTestSet::read(&run)?;
        let all = SampleSet::all(test_set.len());
        let initial = ModelParameters::new(run.architecture(), &run.initial_model()?);
        let right = correct_samples(run.architecture(), &initial, &test_set, &all).len();
        let mut counts = vec![format!("\"1:\": {right}")];
        for round in run.spec().round_ids() {
            counts.extend(of_round(&run, &test_set, round)?);
        }
        println!("{{{}}}", counts.join(", "));
    }
    Ok(())
}

fn of_round(run: &RunDirectory, test_set: &CollectiveTestSet, round: RoundId) -> Result<Vec<String>, Error> {
    let mut models = Vec::new();
    for position in run.participants(round).members() {
        let client = &run.spec().clients[position];
        models.push((position, client.weight_in(round), run.local_model(&client.id, round)?));
    }
    let clear = ClearRound::new(run.architecture(), test_set, models);
    let tests: Vec<_> =
        clear.participants().subsets().skip(1).map(|c| (c, SampleSet::all(test_set.len()))).collect();
    let right = clear.correct_samples(&tests);
    let name = |coalition: secsv_federation::Coalition| {
        let names: Vec<String> = run.spec().names(coalition).iter().map(ToString::to_string).collect();
        names.join(",")
    };
    Ok(tests
        .iter()
        .zip(right)
        .map(|((c, _), right)| format!("\"{round}:{}\": {}", name(*c), right.len()))
        .collect())
}
