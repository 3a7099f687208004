//! Errors as exceptions of the package, with their parts.

use pyo3::{exceptions::PyRuntimeError, prelude::*};
use secsv_cli::api::{Explanation, explain};

/// The module that has the exceptions.
const MODULE: &str = "secsv._errors";

/// The exception for an error: `InputError` where the input is at fault, `SecsvError` otherwise.
pub fn raised(py: Python<'_>, error: &anyhow::Error) -> PyErr {
    let said = explain(error);
    if said.is_bad_input { exception(py, "InputError", said) } else { exception(py, "SecsvError", said) }
}

/// The exception that an argument is not what is expected.
pub fn input_error(py: Python<'_>, field: &str, expected: &str, found: &str) -> PyErr {
    let said = Explanation {
        field: Some(field.to_owned()),
        expected: Some(expected.to_owned()),
        found: Some(found.to_owned()),
        message: format!("{field}: expected {expected}, found {found}"),
        ..Explanation::default()
    };
    exception(py, "InputError", said)
}

fn exception(py: Python<'_>, class: &str, said: Explanation) -> PyErr {
    let Explanation { file, field, expected, found, message, .. } = said;
    let made = py
        .import(MODULE)
        .and_then(|module| module.getattr(class))
        .and_then(|class| class.call1((message.as_str(), file, field, expected, found)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        // Without the package around it there is no such class.
        Err(_) => PyRuntimeError::new_err(message),
    }
}
