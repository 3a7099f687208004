//! The figures of the paper's tables, and of the authors' code where it was run on a machine like ours.

use secsv_protocol::decryptors::Protocol;

use super::tasks::PaperTask;

/// Test samples of the paper's tasks (appendix "Datasets and Classifiers").
pub fn samples(task: PaperTask) -> Option<f64> {
    match task {
        PaperTask::Agnews => Some(7600.0),
        PaperTask::Bank | PaperTask::Mnist => Some(10_000.0),
        PaperTask::Mirna => Some(3312.0),
        PaperTask::BreastCancer | PaperTask::Digits => None,
    }
}

/// A row of the table "Running time and error in detail": seconds of processor time for T = 10, n = 5.
#[derive(Clone, Copy, Debug)]
pub struct EvalRow {
    pub total: f64,
    pub arithmetic: f64,
    pub encryption: f64,
    pub decryption: f64,
    pub communication: f64,
    pub shares: f64,
    pub speedup_over_hesv: f64,
    pub slowdown_over_nssv: f64,
    pub error: f64,
}

/// The row of a task and protocol.
pub fn eval(task: PaperTask, protocol: Protocol) -> Option<EvalRow> {
    use Protocol::{Hesv, SecSv, SecretSv};
    let figures = match (task, protocol) {
        (PaperTask::Agnews, Hesv) => [4400.0, 3860.0, 121.0, 50.48, 96.25, 0.0, 1.0, 28.3, 2.84e-3],
        (PaperTask::Agnews, SecSv) => [1054.0, 1005.0, 6.61, 1.77, 8.53, 7.84, 4.2, 6.8, 9.64e-4],
        (PaperTask::Agnews, SecretSv) => [3698.0, 146.0, 0.0, 0.0, 256.0, 1713.0, 1.2, 23.8, 2.46e-3],
        (PaperTask::Bank, Hesv) => [2934.0, 2255.0, 149.0, 64.99, 124.0, 0.0, 1.0, 13.5, 2.13e-3],
        (PaperTask::Bank, SecSv) => [137.0, 113.0, 1.08, 1.14, 4.06, 7.81, 21.4, 0.6, 8.86e-4],
        (PaperTask::Bank, SecretSv) => [791.0, 26.64, 0.0, 0.0, 55.17, 376.0, 3.7, 3.6, 1.00e-3],
        (PaperTask::Mnist, Hesv) => {
            [274_470.0, 76_384.0, 87_610.0, 290.0, 29_658.0, 0.0, 1.0, 276.9, 6.98e-4]
        }
        (PaperTask::Mnist, SecSv) => [39_310.0, 32_468.0, 11.27, 199.0, 592.0, 2299.0, 7.0, 39.7, 9.28e-4],
        (PaperTask::Mnist, SecretSv) => [158_407.0, 3751.0, 0.0, 0.0, 8933.0, 121_393.0, 1.7, 159.8, 1.20e-3],
        (PaperTask::Mirna, Hesv) => {
            [411_628.0, 190_190.0, 61_528.0, 738.0, 21_481.0, 0.0, 1.0, 47.9, 1.40e-2]
        }
        (PaperTask::Mirna, SecSv) => [77_081.0, 30_215.0, 656.0, 321.0, 1288.0, 3050.0, 5.3, 9.0, 1.70e-2],
        (PaperTask::Mirna, SecretSv) => [38_567.0, 1935.0, 0.0, 0.0, 2796.0, 22_346.0, 10.7, 4.5, 1.87],
        (PaperTask::BreastCancer | PaperTask::Digits, _) | (_, Protocol::BlindSv) => return None,
    };
    let [total, arithmetic, encryption, decryption, communication, shares, faster, slower, error] = figures;
    Some(EvalRow {
        total,
        arithmetic,
        encryption,
        decryption,
        communication,
        shares,
        speedup_over_hesv: faster,
        slowdown_over_nssv: slower,
        error,
    })
}

/// The authors' code on 2 virtual cores of an AMD EPYC (Zen 3): seconds of processor time as they count them,
/// their second server left out, for T = 10. BANK and AGNEWS were run, MNIST and miRNA are extrapolated from
/// 64 samples. They have no BlindSV: it is compared with their SecSV.
pub fn authors_total(task: PaperTask, protocol: Protocol, skip: bool) -> Option<f64> {
    use Protocol::{BlindSv, Hesv, SecSv, SecretSv};
    match (task, protocol, skip) {
        (PaperTask::Bank, SecSv | BlindSv, false) => Some(151.0),
        (PaperTask::Bank, SecSv, true) => Some(97.0),
        (PaperTask::Bank, Hesv, false) => Some(3457.0),
        (PaperTask::Bank, SecretSv, false) => Some(788.0),
        (PaperTask::Agnews, SecSv | BlindSv, false) => Some(1245.0),
        (PaperTask::Agnews, SecSv, true) => Some(873.0),
        (PaperTask::Agnews, Hesv, false) => Some(5289.0),
        (PaperTask::Agnews, SecretSv, false) => Some(3680.0),
        (PaperTask::Mnist, SecSv | BlindSv, false) => Some(49_200.0),
        (PaperTask::Mnist, Hesv, false) => Some(315_000.0),
        (PaperTask::Mnist, SecretSv, false) => Some(155_000.0),
        (PaperTask::Mirna, SecSv, false) => Some(97_000.0),
        (PaperTask::Mirna, Hesv, false) => Some(489_000.0),
        (PaperTask::Mirna, SecretSv, false) => Some(46_000.0),
        _ => None,
    }
}

/// The authors' NSSV on that machine, T = 10: ten times one round for BANK and AGNEWS.
pub fn authors_nssv(task: PaperTask) -> Option<f64> {
    match task {
        PaperTask::Bank => Some(73.0),
        PaperTask::Agnews => Some(46.0),
        PaperTask::Mnist => Some(68.0),
        PaperTask::Mirna => Some(29.0),
        PaperTask::BreastCancer | PaperTask::Digits => None,
    }
}

/// A row of the table "Comparisons of SV estimation methods under SecSV": speedup over HESV and error without
/// and with SampleSkip.
#[derive(Clone, Copy, Debug)]
pub struct EstimationRow {
    pub speedup: [f64; 2],
    pub error: [f64; 2],
}

/// The estimators of that table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaperEstimator {
    Exact,
    Permutations,
    GroupTesting,
    KernelShap,
}

/// The row of a task and estimator. The paper's errors are in units of 1e-2; these are not.
pub fn estimation(task: PaperTask, estimator: PaperEstimator) -> Option<EstimationRow> {
    use PaperEstimator::{Exact, GroupTesting, KernelShap, Permutations};
    let (off, on, error, error_on) = match (task, estimator) {
        (PaperTask::Agnews, Exact) => (4.2, 7.2, 0.10, 0.10),
        (PaperTask::Agnews, Permutations) => (4.2, 7.2, 2.00, 2.01),
        (PaperTask::Agnews, GroupTesting) => (3.5, 5.5, 3.41, 3.39),
        (PaperTask::Agnews, KernelShap) => (5.3, 8.6, 17.63, 17.63),
        (PaperTask::Bank, Exact) => (21.4, 36.6, 0.09, 0.09),
        (PaperTask::Bank, Permutations) => (21.3, 36.5, 1.25, 1.24),
        (PaperTask::Bank, GroupTesting) => (8.9, 10.8, 3.40, 3.40),
        (PaperTask::Bank, KernelShap) => (27.0, 44.1, 7.67, 7.66),
        (PaperTask::Mnist, Exact) => (7.0, 25.8, 0.09, 0.64),
        (PaperTask::Mnist, Permutations) => (7.0, 25.8, 2.69, 2.88),
        (PaperTask::Mnist, GroupTesting) => (6.9, 25.3, 3.58, 3.80),
        (PaperTask::Mnist, KernelShap) => (9.0, 27.2, 15.46, 15.65),
        (PaperTask::Mirna, Exact) => (5.3, 11.8, 1.70, 1.82),
        (PaperTask::Mirna, Permutations) => (5.3, 11.8, 3.03, 3.25),
        (PaperTask::Mirna, GroupTesting) => (5.3, 11.7, 3.67, 3.50),
        (PaperTask::Mirna, KernelShap) => (7.0, 14.0, 20.77, 20.49),
        (PaperTask::BreastCancer | PaperTask::Digits, _) => return None,
    };
    Some(EstimationRow { speedup: [off, on], error: [error * 1e-2, error_on * 1e-2] })
}

/// The table "Speedup of Matrix Reducing w.r.t. Matrix Squaring", and what stock TenSEAL measured on the machine of
/// [`authors_total`] under each convention.
#[derive(Clone, Copy, Debug)]
pub struct MatmulColumn {
    pub shape: [usize; 2],
    pub full: f64,
    pub half: f64,
    /// Half against Squaring half, TenSEAL's own Galois keys.
    pub tenseal_half: f64,
    /// Half against Squaring *full*, one Galois key per step.
    pub tenseal_half_over_full: f64,
    /// Full against a Squaring with a key per step and blocks added before folding.
    pub tenseal_full_fair: f64,
}

/// One entry for each shape.
pub const MATMUL: [MatmulColumn; 7] = [
    column([4, 300], [1.69, 3.24, 4.06, 4.04, 1.38]),
    column([2, 48], [6.10, 11.39, 36.2, 15.6, 5.03]),
    column([64, 256], [1.99, 3.92, 1.52, 3.36, 1.46]),
    column([10, 64], [2.30, 4.49, 3.54, 5.42, 2.24]),
    column([32, 64], [2.66, 5.23, 1.93, 4.34, 1.95]),
    column([32, 32], [2.85, 3.71, 1.90, 4.37, 2.0]),
    column([2, 32], [2.45, 2.87, 5.75, 8.40, 3.84]),
];

const fn column(shape: [usize; 2], figures: [f64; 5]) -> MatmulColumn {
    let [full, half, tenseal_half, tenseal_half_over_full, tenseal_full_fair] = figures;
    MatmulColumn { shape, full, half, tenseal_half, tenseal_half_over_full, tenseal_full_fair }
}

/// Shares skipped and wrongly skipped, of the predictions of aggregated models: the authors' rule and
/// training on the same data, counted in the clear. The paper's figure "Skipped samples" has no numbers.
pub fn skipped(task: PaperTask) -> Option<[f64; 2]> {
    match task {
        PaperTask::Bank => Some([0.853, 0.0]),
        PaperTask::Agnews => Some([0.638, 0.0]),
        PaperTask::Mnist => Some([0.774, 0.0080]),
        PaperTask::Mirna | PaperTask::BreastCancer | PaperTask::Digits => None,
    }
}
