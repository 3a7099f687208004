//! The extension module `secsv._native`: what the Python package calls. Documents cross as JSON text, numbers as bytes; the package
//! in `python/` makes objects of them.
//!
//! Work runs on threads of its own with the interpreter released, while the caller's thread looks for signals. Nothing is started
//! before somebody asks for work, so that a process can be forked after the import.

mod errors;
mod work;

use std::{ffi::OsString, path::PathBuf};

use pyo3::prelude::*;
use secsv_cli::api;
use secsv_evaluation::EvaluationResult;

use errors::{input_error, raised};
use work::{Told, in_background};

/// What `secsv.evaluate` and its neighbours are made of.
#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    const VERSION: &str = api::VERSION;

    /// Runs the command line once and hands on the exit code. The first argument is the program's name.
    #[pyfunction]
    fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
        py.detach(|| secsv_cli::run(arguments, None))
    }

    /// Evaluates a run by the arguments of `secsv evaluate`; hands on the result as JSON. `observe(round, tested, asked)` is called now
    /// and then, from the caller's thread.
    #[pyfunction]
    fn evaluate(py: Python<'_>, arguments: Vec<OsString>, observe: Option<Py<PyAny>>) -> PyResult<String> {
        let told = |py: Python<'_>, (round, tested, asked): Told| match &observe {
            Some(observe) => observe.call1(py, (round, tested, asked)).map(drop),
            None => Ok(()),
        };
        in_background(py, told, move |progress, stop| {
            let observe =
                |now: secsv_evaluation::Progress| progress.tell((now.round.0, now.tested, now.asked));
            Ok(serde_json::to_string(&api::evaluate(&arguments, observe, stop)?)?)
        })
    }

    /// Plans by the arguments of `secsv plan`; hands on the plan as JSON.
    #[pyfunction]
    fn plan(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<String> {
        in_background(py, |_, _| Ok(()), move |_, _| Ok(serde_json::to_string(&api::plan(&arguments)?)?))
    }

    /// Checks a whole run directory.
    #[pyfunction]
    fn check(py: Python<'_>, run: PathBuf) -> PyResult<()> {
        in_background(py, |_, _| Ok(()), move |_, _| api::check(run))
    }

    /// What `federation.toml` says, as JSON.
    #[pyfunction]
    fn describe(py: Python<'_>, run: PathBuf) -> PyResult<String> {
        let described = || Ok(serde_json::to_string(&api::describe(run)?)?);
        py.detach(described).map_err(|error| raised(py, &error))
    }

    /// Every protocol by name, with why it cannot test the model of a run, or None.
    #[pyfunction]
    fn protocols(py: Python<'_>, run: PathBuf) -> PyResult<Vec<(&'static str, Option<String>)>> {
        py.detach(|| api::protocols(run)).map_err(|error| raised(py, &error))
    }

    /// The scores of the initial model for a client's samples: doubles, row by row, and how many there are for a sample.
    #[pyfunction]
    fn scores(py: Python<'_>, run: PathBuf, client: String) -> PyResult<(Vec<u8>, usize)> {
        in_background(
            py,
            |_, _| Ok(()),
            move |_, _| {
                let (scores, outputs) = api::scores(&run, &client)?;
                Ok((scores.iter().flat_map(|score| score.to_le_bytes()).collect(), outputs))
            },
        )
    }

    /// The HTML report of a result.
    #[pyfunction]
    #[pyo3(signature = (result, title=None))]
    fn report(py: Python<'_>, result: &str, title: Option<&str>) -> PyResult<String> {
        let result = parsed(py, result)?;
        Ok(py.detach(|| api::report(&result, title)))
    }

    /// The result of the game that the other clients play, as JSON.
    #[pyfunction]
    fn without(py: Python<'_>, result: &str, silos: Vec<String>) -> PyResult<String> {
        let result = parsed(py, result)?;
        let others = || Ok(serde_json::to_string(&api::without(&result, &silos)?)?);
        py.detach(others).map_err(|error| raised(py, &error))
    }
}

/// A result from its document.
fn parsed(py: Python<'_>, result: &str) -> PyResult<EvaluationResult> {
    serde_json::from_str(result)
        .map_err(|error| input_error(py, "result", "a result of secsv", &error.to_string()))
}
