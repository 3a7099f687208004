//! Runs the attacks that need no knowledge of the columns on a directory that `secsv evaluate --views DIR`
//! wrote, and says what every client could rebuild: `cargo run -p secsv-attacks --example replay -- DIR
//! [RUN]`. With the run directory the findings are scored.

use std::{env, error::Error, path::PathBuf};

use secsv_attacks::{ClientView, directory::Directory, equations, images, linear::correlation, models};
use secsv_federation::{ClientId, RoundId, RunDirectory};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let directory = Directory::open(arguments.next().ok_or("usage: replay DIR [RUN]")?)?;
    let run = arguments.next().map(RunDirectory::open).transpose()?;
    println!("{}, {} clients", directory.protocol(), directory.clients().len());
    for server in ["principal", "auxiliary"] {
        println!("{server}: {} outputs read", directory.server(server)?.len());
    }
    for (client, id) in directory.clients().iter().enumerate() {
        let view = directory.client(client)?;
        println!("{id}: {} outputs of others' models on others' samples", view.outputs.len());
        for (owner, name) in directory.clients().iter().enumerate() {
            samples(&view, owner, name, run.as_ref())?;
        }
        let meetings = models::meetings(&view);
        if !meetings.is_empty() {
            let single = meetings.iter().filter(|meeting| meeting.coalition.len() == 1).count();
            println!("  both ends of a later layer: {} times, {single} of single models", meetings.len());
        }
    }
    Ok(())
}

/// Equations about an owner's samples and, where there are enough, the samples.
fn samples(
    view: &ClientView,
    owner: usize,
    name: &ClientId,
    run: Option<&RunDirectory>,
) -> Result<(), Box<dyn Error>> {
    let rounds: Vec<RoundId> = view.global.keys().copied().collect();
    let Some(system) = equations::known(view, owner, &rounds)? else { return Ok(()) };
    let (equations, unknowns) = system.matrix.shape();
    let bits = system.matrix.clone().svd(false, false).singular_values;
    let bits: f64 = bits.iter().map(|value| (value / system.rounding).log2().max(0.0)).sum();
    print!(
        "  samples of {name}: {equations} equations in {} rounds beside {unknowns} unknowns, {bits:.0} bits",
        system.rounds.len()
    );
    if let (Some(run), true) = (run, equations >= unknowns) {
        let truth: Vec<f64> = run.test_set(name)?.features().iter().map(|&x| f64::from(x)).collect();
        if let Some(found) = images::rebuild(&system, view.own.features()) {
            print!(", rebuilt with correlation {:.5}", correlation(found.iter(), &truth));
        }
    }
    println!();
    Ok(())
}
