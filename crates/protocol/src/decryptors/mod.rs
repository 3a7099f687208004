//! Who may decrypt what.
//!
//! Receives the number of clients, their test-set sizes and the network's shape; hands on, for every test of a
//! coalition's model on the samples of an owner group, the clients who decrypt its layers ([`UnitRoles`]). Roles
//! that break a rule cannot be made: only a [`Planner`] makes them. It sends nothing and holds no key.
//!
//! ```
//! use std::num::NonZeroUsize;
//! use secsv_federation::{Coalition, RoundId};
//! use secsv_protocol::decryptors::{Network, OwnerGroups, Planner, Protocol, Unit};
//! # fn example() -> Result<(), secsv_protocol::decryptors::PlanError> {
//! let network = Network::feedforward(2)?;
//! let batch = NonZeroUsize::MIN.saturating_add(1023);
//! let groups = OwnerGroups::new(&[300, 500, 200, 400, 0], network, batch)?;
//! let mut planner = Planner::new(groups, Protocol::SecSv, network)?;
//! let participants = Coalition::first(5);
//! let coalition = [0, 3].into_iter().collect();
//! let unit = Unit { round: RoundId(1), participants, group: 0, coalition };
//! let roles = planner.assign(unit, Coalition::EMPTY)?;
//! assert_eq!(roles.decryptors().len(), 2);
//! # Ok(())
//! # }
//! # example().unwrap();
//! ```
//!
//! # The rules
//!
//! Let the owners of a batch be i1, and let i(l+1) decrypt layer l of L, among n clients. From the paper
//! (Proposition 1): i(l+1) is not i(l); i2 and i(L+1) own no sample of the batch; nobody decrypts for a model it
//! knows, which for us includes the sum of all others' models ([`knows`]); if n >= L + 2, all are distinct; in
//! HESV the counting client i(L+2) owns no sample of the batch and is not i(L+1). Roles that take over from a
//! client who stays away keep the rules together with what that client has seen.
//!
//! The rules narrow what a client reads. They do not protect samples or models against it: see
//! [`exposure`](crate::exposure).
//!
//! # The span rule
//!
//! The paper overlooks that layer 1 is linear. In one round, replies to client c about one sample x are
//! sum over i in S of k_i (theta_i x), with fixed weights k_i > 0. If c sees S and S without c, subtraction gives
//! theta_c x; c has theta_c and solves for x. In general theta_c x can be had by adding multiples of replies if and
//! only if the span of the weight vectors c was sent contains e_c. Dividing coordinate i by k_i, the vectors are
//! indicators 1_S.
//!
//! Let x_1, x_2, x_3 be participants who own no sample of the batch.
//! **x_i may take S if and only if x_i and x_(i+1) are both in S or both outside** (x_4 is x_1).
//!
//! - *Safe*: every vector sent to x_i is a zero of the linear form v(x_i) - v(x_(i+1)), hence so is the span.
//!   The form is 1 at e_(x_i). So this holds for whatever subset of the replies is sent, in any order, and for any
//!   number of repetitions and replacements: nothing already sent can make a later reply unsafe.
//! - *Somebody is left*: if all neighbours disagreed about S, membership would alternate around a cycle of odd
//!   length, which is impossible.
//! - *Nobody takes a model it knows*: S = {x_i} and S = I without x_i separate x_i from everybody else.
//!
//! Every further outsider is paired with one of the cycle by a form of the same kind, which is as safe. It decrypts only where
//! the three cannot, or stay away: whoever reads can rebuild, so few should.
//!
//! **Several sessions.** Forms of two sessions over the same samples must be the same, or their replies together would span
//! more. So the cycle depends on nothing that may differ between them: clients are cut into blocks in the federation's
//! order, only samples of one block ever share a batch, and the cycle is made of the first three participants behind the
//! block. It changes with the clients of the federation and with who took part in a round, not with the round, the
//! protocol, the packing or what is asked for.
//!
//! An outsider absent from the round has coordinate zero in every vector and no model of its own, so it takes
//! anything, alone. With two participants among the outsiders, a third outsider is absent, and somebody is left too;
//! each of the two is paired with the other. A single one is paired with a participant of the block: the
//! partner only defines the form and need not decrypt.
//!
//! **A GRU** shows layer-1 outputs to two clients: the re-sharer those of step 1, the gate decryptor those of the
//! further steps. The rule holds per column, so each part has its own forms: the cycle forwards for the first,
//! backwards for the second. If x_i and x_(i+1) agree, x_i may re-share and x_(i+1) decrypt the gates. If two
//! outsiders a, b took part and a single one is absent, the absent one takes the gates where a and b agree.
//! Where they disagree it re-shares, and the gates go to the one who agrees with a participating owner q: with
//! three clients a, b, q two agree. (q exists unless only a and b took part; both then know both models.)
//!
//! # What remains
//!
//! A client also knows the grand coalition's model. Some S has x_i and x_(i+1) as the only neighbours that agree, and so has
//! its complement. Both go to x_i and add up to 1_I: in every round each of the three has the outputs of a model it knows, and can
//! rebuild the samples. With four clients this cannot be avoided, whatever the division: to have neither 1_I nor a mixture of it
//! and e_c in its span, a client could take vectors from a plane only, which holds at most three coalitions; three outsiders
//! would take nine of the twelve that the owner does not test itself.
//!
//! A GRU's gate decryptor has z_t and n_t for all t >= 2, so it computes every hidden state from the first. It decrypts the
//! layer that follows only if nobody else can.
//!
//! Some tests cannot be planned: with only two participants both know both local models, and where neither owns
//! a sample of the batch, fewer outsiders may remain than the layers need ([`PlanError::NobodyLeft`]).

mod error;
mod groups;
mod knowledge;
mod ledger;
mod partners;
mod planner;
mod search;
mod span;
mod unit;

#[cfg(test)]
mod tests;

pub use crate::rules::Protocol;
pub use error::PlanError;
pub use groups::{OwnerGroup, OwnerGroups, max_owners};
pub use knowledge::{knowing, knows};
pub use ledger::{Ledger, Part, PlannedReply};
pub use planner::Planner;
pub use unit::{GruRoles, Network, Reading, Unit, UnitRoles};
