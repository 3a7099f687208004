//! What a server does for one coalition on one owner's samples, stage by stage. Both servers do the same with their own shares; what
//! they hold between two stages is what was opened.

use secsv_algebra::Secret;
use secsv_federation::{Coalition, RoundId};

use super::{
    comparison::Before,
    keys::{OwnerKey, Purpose},
    lanes::LANES,
    shape::{Outcome, Shape, Stage},
    words::{pack, unpack},
};
use crate::message::Server;

/// One server, one coalition, one owner.
pub(crate) struct Evaluator<'a> {
    pub shape: &'a Shape,
    pub server: Server,
    pub key: &'a OwnerKey,
    pub place: (RoundId, Coalition),
    /// What the owner dealt, at the auxiliary.
    pub dealt: Option<&'a [u8]>,
}

impl Evaluator<'_> {
    /// The server's share of the constant 1.
    fn one(&self) -> u64 {
        if self.server == Server::Principal { u64::MAX } else { 0 }
    }

    fn is_principal(&self) -> bool {
        self.server == Server::Principal
    }

    /// The server's masks of what is opened at a stage.
    fn masks(&self, stage: Stage) -> Secret<Vec<u64>> {
        self.key.words(self.place, Purpose::Opening(self.shape.index(stage)), self.shape.opened(stage))
    }

    /// The server's share of some words that were dealt, which stand at `first` at the auxiliary.
    fn dealt(&self, purpose: Purpose, first: usize, count: usize, bytes: usize) -> Secret<Vec<u64>> {
        match self.dealt {
            None => self.key.words(self.place, purpose, count),
            Some(dealt) => {
                let packed = dealt.get(first..first + count * bytes).unwrap_or(&[]);
                let mut words = Secret::new(Vec::with_capacity(count));
                words.expose_mut().extend(unpack(packed, bytes));
                words.expose_mut().resize(count, 0);
                words
            }
        }
    }

    fn dealt_words(&self) -> Secret<Vec<u64>> {
        self.dealt(Purpose::DealtWords, 0, self.shape.dealt_words(), self.shape.widths.bytes())
    }

    /// The server's share of the planes that were dealt for a stage.
    fn dealt_planes(&self, stage: Stage) -> Secret<Vec<u64>> {
        let first = self.shape.dealt_words() * self.shape.widths.bytes();
        let range = self.shape.dealt_range(stage);
        match self.dealt {
            None => self.key.words_in(self.place, Purpose::DealtPlanes, range),
            Some(_) => self.dealt(Purpose::DealtPlanes, first + 8 * range.start, range.len(), 8),
        }
    }

    fn dealt_outcomes(&self) -> Secret<Vec<u64>> {
        let shape = self.shape;
        let words = shape.dealt_words() * shape.widths.bytes();
        let first = words + 8 * shape.all_dealt_planes();
        self.dealt(Purpose::DealtOutcomes, first, shape.dealt_outcomes(), shape.outcome_bytes())
    }

    /// Appends the server's share of the scores, under its mask. `scores` come row by row.
    pub(crate) fn scores(&self, scores: &[u64], out: &mut Vec<u8>) {
        let masks = self.masks(Stage::Scores);
        let widths = self.shape.widths;
        let sums = scores.iter().zip(masks.expose());
        pack(sums.map(|(score, mask)| score.wrapping_add(*mask) & widths.mask()), widths.bytes(), out);
    }

    /// What both servers' messages of a stage open.
    pub(crate) fn open(&self, stage: usize, own: &[u8], other: &[u8]) -> Vec<u64> {
        match self.shape.stage(stage) {
            Some(Stage::Scores | Stage::Margins) => {
                let widths = self.shape.widths;
                let pairs = unpack(own, widths.bytes()).zip(unpack(other, widths.bytes()));
                pairs.map(|(own, other)| own.wrapping_add(other) & widths.mask()).collect()
            }
            _ => unpack(own, 8).zip(unpack(other, 8)).map(|(own, other)| own ^ other).collect(),
        }
    }

    /// The planes of what is compared: one for each bit of a word.
    pub(crate) fn compared(&self, opened: &[u64]) -> Vec<u64> {
        let mut found = Vec::new();
        self.shape.compared_planes(opened, &mut found);
        found
    }

    /// Appends the server's message of a stage behind the scores, from what was opened at the stage before. `compared` are planes of
    /// what is compared, from that stage on; `labels` the server's share of the labels, one for each score.
    pub(crate) fn message(&self, stage: usize, state: Opened<'_>, labels: Option<&[u64]>, out: &mut Vec<u8>) {
        let Some(stage) = self.shape.stage(stage) else { return };
        if stage == Stage::Margins {
            return self.margins(state.opened, labels.unwrap_or(&[]), out);
        }
        let shares = self.planes(stage, state);
        let masks = self.masks(stage);
        pack(shares.expose().iter().zip(masks.expose()).map(|(share, mask)| share ^ mask), 8, out);
    }

    /// What the true class's score is above every class's.
    fn margins(&self, opened: &[u64], labels: &[u64], out: &mut Vec<u8>) {
        let (shape, samples, widths) = (self.shape, self.shape.samples, self.shape.widths);
        let (scores, masks) = (self.masks(Stage::Scores), self.masks(Stage::Margins));
        // The true class's score under its mask, less the mask.
        let mut of_label = self.dealt_words();
        of_label.expose_mut().iter_mut().for_each(|word| *word = word.wrapping_neg());
        for (opened, labels) in opened.chunks_exact(samples.max(1)).zip(labels.chunks_exact(samples.max(1))) {
            for ((sum, opened), label) in of_label.expose_mut().iter_mut().zip(opened).zip(labels) {
                *sum = sum.wrapping_add(opened.wrapping_mul(*label));
            }
        }
        let one = u64::from(self.is_principal());
        for class in 0..shape.classes {
            let masks = &masks.expose()[class * samples..][..samples];
            let sums = of_label.expose().iter().zip(masks).map(|(sum, mask)| sum.wrapping_add(*mask));
            if class < shape.rows {
                let (opened, own) = (&opened[class * samples..], &scores.expose()[class * samples..]);
                let scores = opened.iter().zip(own).map(|(opened, own)| own.wrapping_sub(one * opened));
                let margins = sums.zip(scores).map(|(sum, score)| sum.wrapping_add(score) & widths.mask());
                pack(margins, widths.bytes(), out);
            } else {
                pack(sums.map(|sum| sum & widths.mask()), widths.bytes(), out);
            }
        }
    }

    /// Shares of the planes that a stage opens.
    fn planes(&self, stage: Stage, Opened { opened, compared }: Opened<'_>) -> Secret<Vec<u64>> {
        let (shape, one) = (self.shape, self.one());
        let before = shape.stage(shape.index(stage).wrapping_sub(1)).unwrap_or(Stage::Scores);
        let (opened, masks) = match before {
            Stage::Scores | Stage::Margins => (&[][..], Secret::new(Vec::new())),
            _ => (opened, self.masks(before)),
        };
        let (dealt, before) = (self.dealt_planes(stage), Before { opened, masks: masks.expose() });
        let mut shares = Secret::new(Vec::with_capacity(shape.opened(stage)));
        let out = shares.expose_mut();
        match stage {
            Stage::Scores | Stage::Margins => {}
            Stage::Comparison(step) => {
                let numbers = (shape.compared_words(), one);
                shape.comparison.step(step, compared, before, dealt.expose(), numbers, out);
            }
            Stage::Conjunction(level) => {
                shape.conjunction.join(level, before, dealt.expose(), (shape.blocks(), one), out);
            }
        }
        shares
    }

    /// The server's share of what is found, from what the last stage opened.
    pub(crate) fn outcome(&self, opened: &[u64]) -> Vec<u64> {
        let dealt = self.dealt_outcomes();
        let one = u64::from(self.is_principal());
        if self.shape.outcome == Outcome::Each {
            let planes = dealt.expose().iter().zip(opened);
            return planes.map(|(share, opened)| share ^ (opened & self.one())).collect();
        }
        let sum = dealt.expose().iter().enumerate().fold(0u64, |sum, (sample, share)| {
            let bit = opened[sample / LANES] >> (sample % LANES) & 1;
            let signed = if bit == 1 { share.wrapping_neg() } else { *share };
            sum.wrapping_add(signed).wrapping_add(bit * one)
        });
        vec![sum & self.shape.widths.count_mask()]
    }
}

/// What a unit has opened.
#[derive(Clone, Copy)]
pub(crate) struct Opened<'a> {
    /// At the stage before.
    pub opened: &'a [u64],
    /// Planes of what is compared, once it is open.
    pub compared: &'a [u64],
}
