//! Measurements for each number of clients.

use secsv_shapley::Method;

use super::{measurement::Measurement, study::StudyScope, tasks::PaperTask};
use crate::protocol_name::ProtocolName;

/// The paper's figure goes from 4 to 10.
pub(super) const CLIENT_COUNTS: std::ops::RangeInclusive<usize> = 4..=10;

/// SecSV for this many clients, within the limit of a sweep.
pub(super) fn of_clients(scope: &StudyScope, task: PaperTask, clients: f64, skip: bool) -> Measurement {
    let trained = scope.with(task, task.model(), clients as usize, 0);
    let whole = Measurement::new(trained, ProtocolName::SECSV);
    let limit = Some(scope.sweep_limit(task.model()));
    Measurement { share: scope.studied(task), skip, limit, ..whole }
}

/// The same with as many tests as the paper's KernelSHAP takes: their number grows with n, not with 2^n. For
/// logistic models.
pub(super) fn of_clients_estimated(scope: &StudyScope, task: PaperTask, clients: usize) -> Measurement {
    let exact = of_clients(scope, task, clients as f64, false);
    let estimator_samples = Some(2 * clients + 16);
    Measurement { method: Method::KernelShap, estimator_samples, limit: None, ..exact }
}
