//! What a silo must accept before it takes part: sentences, and a word that stands for having read them.

use secsv_evaluation::called;
use secsv_federation::ClientId;
use secsv_protocol::{PartyId, exposure::Exposure};

use crate::{
    fingerprint::to_hex,
    kit::{Kit, KitError},
};

/// Digits of the word.
const DIGITS: usize = 10;

/// Something that a silo is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// What it accepts.
    pub sentences: Vec<String>,
    /// The argument that answers.
    pub argument: &'static str,
    /// The answer: it fits these sentences in this federation alone.
    pub word: String,
}

impl Question {
    pub(crate) fn new(argument: &'static str, kit: &Kit, sentences: Vec<String>) -> Self {
        let mut hash = blake3::Hasher::new();
        hash.update(b"secsv acceptance, format 1\n").update(argument.as_bytes()).update(&kit.signed_digest());
        hash.update(kit.own_name().as_bytes()).update(kit.federation.session.protocol.as_bytes());
        for sentence in &sentences {
            hash.update(&(sentence.len() as u64).to_le_bytes()).update(sentence.as_bytes());
        }
        let word = to_hex(hash.finalize().as_bytes())[..DIGITS].to_owned();
        Self { sentences, argument, word }
    }

    /// What others can do with a client's samples and models, alone or together, by its kit; nothing for servers, who own
    /// neither.
    pub fn exposure(kit: &Kit) -> Result<Option<Self>, ConsentError> {
        let PartyId::Client(position) = kit.own else { return Ok(None) };
        let exposure = Exposure::new(&kit.session()?)?;
        let ids: Vec<&str> = kit.federation.federation.ids().map(ClientId::as_str).collect();
        let labels = kit.labels()?;
        let with_limits = |mut sentences: Vec<String>| {
            let spec = &kit.federation.federation;
            if let Some(limits) = spec.limits.filter(|_| spec.comes_later()) {
                sentences.push(format!(
                    "Values and utilities of each of up to {} rounds are told as the round ends, while training goes on: whoever trains the next \
                     round may go by them.",
                    limits.rounds
                ));
            }
            sentences
        };
        let question = Self::new("--accept-exposure", kit, with_limits(exposure.of_owner(position, &ids)));
        // The word follows from ids: whoever corrects a label is not asked again.
        let named = exposure.of_owner(position, &called(&kit.federation.federation, &labels));
        Ok(Some(Self { sentences: with_limits(named), ..question }))
    }

    /// Goes on if the answer is the word.
    pub fn answered(self, given: Option<&str>) -> Result<(), ConsentError> {
        if given == Some(self.word.as_str()) {
            return Ok(());
        }
        Err(ConsentError::Unaccepted { given: given.map(str::to_owned), question: Box::new(self) })
    }
}

impl std::fmt::Display for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.sentences.iter().try_for_each(|sentence| writeln!(f, "  {sentence}"))?;
        write!(
            f,
            "Whoever answers for these data and accepts this starts again with {} {}",
            self.argument, self.word
        )
    }
}

/// Why a silo does not take part.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsentError {
    /// The kit cannot be used.
    #[error(transparent)]
    Kit(#[from] KitError),
    /// The session cannot be planned.
    #[error(transparent)]
    Role(#[from] secsv_protocol::Error),
    /// It was not accepted what must be accepted.
    #[error("{}{question}", said(given.as_deref(), question))]
    Unaccepted {
        /// What was given instead of the word.
        given: Option<String>,
        /// The question.
        question: Box<Question>,
    },
}

impl ConsentError {
    /// Whether the input is at fault.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Kit(error) => error.is_bad_input(),
            Self::Role(error) => error.is_bad_input(),
            Self::Unaccepted { .. } => true,
        }
    }
}

/// How a question begins, after a wrong answer or none.
fn said(given: Option<&str>, question: &Question) -> String {
    match given {
        None => "this client was not told that its owner accepts this:\n".to_owned(),
        Some(given) => {
            format!("{}: expected the word for what follows, found {given:?}:\n", question.argument)
        }
    }
}
