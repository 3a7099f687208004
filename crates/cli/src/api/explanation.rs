//! Errors by their parts, for programs that say them in their own way.

use clap::error::{ContextKind, ContextValue};

use crate::failure::{BadInput, is_bad_input, message};

/// An error in parts. What an error does not have is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Whether the input is at fault.
    pub is_bad_input: bool,
    /// Whether somebody stopped it.
    pub is_stopped: bool,
    /// The file.
    pub file: Option<String>,
    /// The key or tensor in it, or the argument.
    pub field: Option<String>,
    /// The value that belongs there.
    pub expected: Option<String>,
    /// The value that is there.
    pub found: Option<String>,
    /// All of it in one line.
    pub message: String,
}

/// An error by its parts.
pub fn explain(error: &anyhow::Error) -> Explanation {
    let stopped = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(secsv_evaluation::Error::Stopped))
    };
    let mut explanation = Explanation {
        is_bad_input: is_bad_input(error),
        is_stopped: error.chain().any(stopped),
        message: message(error),
        ..Explanation::default()
    };
    for cause in error.chain() {
        if let Some(BadInput { setting, expected, found }) = cause.downcast_ref() {
            explanation.field = Some(argument(setting));
            (explanation.expected, explanation.found) = (Some((*expected).to_owned()), Some(found.clone()));
        } else if let Some(error) = cause.downcast_ref::<clap::Error>() {
            of_arguments(error, &mut explanation);
        } else if let Some(error) = cause.downcast_ref::<secsv_federation::Error>() {
            of_file(error, &mut explanation);
        } else if let Some(secsv_evaluation::Error::Federation(error)) = cause.downcast_ref() {
            of_file(error, &mut explanation);
        }
    }
    if explanation.expected.is_none() {
        (explanation.expected, explanation.found) = halves(&explanation.message);
    }
    explanation
}

/// An argument as functions have it: `--max-error` is `max_error`.
fn argument(name: &str) -> String {
    let name = name.split([' ', '=']).next().unwrap_or_default();
    name.trim_start_matches('-').trim_matches(['<', '>']).replace('-', "_").to_lowercase()
}

fn of_arguments(error: &clap::Error, explanation: &mut Explanation) {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    explanation.is_bad_input = true;
    explanation.field = text(ContextKind::InvalidArg).map(|name| argument(&name));
    explanation.found = text(ContextKind::InvalidValue);
    explanation.expected = text(ContextKind::ValidValue).map(|values| format!("one of {values}"));
    let first = error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    explanation.message = match (&explanation.field, &explanation.expected, &explanation.found) {
        (Some(field), Some(expected), Some(found)) => format!("{field}: expected {expected}, found {found}"),
        _ => first,
    };
}

fn of_file(error: &secsv_federation::Error, explanation: &mut Explanation) {
    use secsv_federation::Error;
    match error {
        Error::Defect { file, field, defect } => {
            explanation.file = Some(file.display().to_string());
            explanation.field = Some(field.clone());
            (explanation.expected, explanation.found) = halves(&defect.to_string());
        }
        Error::Io { file, .. }
        | Error::Write { file, .. }
        | Error::OutOfMemory { file, .. }
        | Error::Toml { file, .. } => explanation.file = Some(file.display().to_string()),
        _ => {}
    }
}

/// What was expected and what was found, of a sentence that says so.
fn halves(text: &str) -> (Option<String>, Option<String>) {
    let Some((_, said)) = text.split_once("expected ") else { return (None, None) };
    match said.split_once(", found ") {
        Some((expected, found)) => (Some(expected.to_owned()), Some(found.to_owned())),
        None => (Some(said.to_owned()), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_parts_that_its_sentence_has() {
        let missing = crate::api::check("no such directory").unwrap_err();
        let found = explain(&missing);
        assert!(found.is_bad_input && !found.is_stopped, "{found:?}");
        assert_eq!(found.file.as_deref(), Some("no such directory/federation.toml"));
        assert_eq!(found.field.as_deref(), Some("file"));
        assert_eq!((found.expected.as_deref(), found.found.as_deref()), (Some("this file"), Some("none")));

        let arguments = ["run", "--protocol", "magic"].map(Into::into);
        let unknown = crate::api::plan(&arguments).unwrap_err();
        let found = explain(&unknown);
        assert_eq!((found.field.as_deref(), found.found.as_deref()), (Some("protocol"), Some("magic")));
        assert!(found.is_bad_input && found.message.contains("blindsv"), "{found:?}");

        let bad = BadInput::new("--max-error", "a number above 0", "-1");
        let found = explain(&bad.into());
        assert_eq!(found.field.as_deref(), Some("max_error"));
        assert_eq!(found.message, "--max-error: expected a number above 0, found -1");
    }
}
