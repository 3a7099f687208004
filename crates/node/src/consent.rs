//! What a silo must accept before it takes part: sentences, and a word that stands for having read them.

use secsv_federation::ClientId;
use secsv_protocol::{PartyId, exposure::Exposure};

use crate::{Error, fingerprint::to_hex, kit::Kit};

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
        hash.update(b"secsv acceptance, format 1\n").update(argument.as_bytes()).update(&kit.digest);
        hash.update(kit.own_name().as_bytes()).update(kit.federation.session.protocol.as_bytes());
        for sentence in &sentences {
            hash.update(&(sentence.len() as u64).to_le_bytes()).update(sentence.as_bytes());
        }
        let word = to_hex(hash.finalize().as_bytes())[..DIGITS].to_owned();
        Self { sentences, argument, word }
    }

    /// What others can do with a client's samples and models, by its kit alone; nothing where nobody can do anything, and for
    /// servers, who own neither.
    pub fn exposure(kit: &Kit) -> Result<Option<Self>, Error> {
        let PartyId::Client(position) = kit.own else { return Ok(None) };
        let exposure = Exposure::new(&kit.session()?).map_err(Error::Role)?;
        if !exposure.is_exposed(position) {
            return Ok(None);
        }
        let names: Vec<&str> = kit.federation.federation.ids().map(ClientId::as_str).collect();
        Ok(Some(Self::new("--accept-exposure", kit, exposure.of_owner(position, &names))))
    }

    /// Goes on if the answer is the word.
    pub fn answered(self, given: Option<&str>) -> Result<(), Error> {
        if given == Some(self.word.as_str()) {
            return Ok(());
        }
        Err(Error::Unaccepted { given: given.map(str::to_owned), question: Box::new(self) })
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
