//! Why there is no plan.

use std::fmt;

use secsv_federation::{Coalition, RoundId};

/// Why clients could not be grouped, or why nobody could be assigned to a test.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Fewer than four clients: a batch has an owner, and three others must share its first-layer outputs.
    #[error(
        "{clients} clients: at least 4 are needed, the owner of a batch and 3 others among whom its first-layer \
         outputs are divided; with fewer, one client can subtract two outputs and solve for the samples"
    )]
    TooFewClients {
        /// How many there are.
        clients: usize,
    },
    /// More clients than a [`Coalition`] can name.
    #[error("{clients} clients: at most {most} can be named")]
    TooManyClients {
        /// How many there are.
        clients: usize,
        /// How many there may be.
        most: usize,
    },
    /// A network without a linear layer, or a GRU without a step.
    #[error("a network needs at least one linear layer or one GRU step")]
    NoLayers,
    /// The groups were made for another number of clients or layers, and may be too large for this one.
    #[error("a group of {owners} owners, but at most {most} may share a batch of this network")]
    GroupTooLarge {
        /// Owners in the group.
        owners: usize,
        /// Owners it may have.
        most: usize,
    },
    /// There is no such group of owners.
    #[error("no owner group {group}: there are {groups}")]
    NoSuchGroup {
        /// The position that was asked for.
        group: usize,
        /// How many groups there are.
        groups: usize,
    },
    /// A coalition or a round names somebody who is not there.
    #[error("round {round}: {} are not among {}", Names(*found), Names(*expected))]
    Strangers {
        /// The round.
        round: RoundId,
        /// Who was named.
        found: Coalition,
        /// Who could have been named.
        expected: Coalition,
    },
    /// A round's participants differ from those it was first planned with. The rules depend on them.
    #[error("round {round} was planned with participants {}, now {}", Names(*expected), Names(*found))]
    ParticipantsChanged {
        /// The round.
        round: RoundId,
        /// The participants first named.
        expected: Coalition,
        /// The participants named now.
        found: Coalition,
    },
    /// Every owner of the group knows the model, so each tests it on its own samples in the clear.
    #[error("round {round}, coalition {}: its model needs no secure test on this group", Names(*coalition))]
    NothingToTest {
        /// The round.
        round: RoundId,
        /// The coalition.
        coalition: Coalition,
    },
    /// The unit has roles already; what they saw counts, so they are replaced and not planned afresh.
    #[error("round {round}, group {group}, coalition {}: planned already", Names(*coalition))]
    AlreadyPlanned {
        /// The round.
        round: RoundId,
        /// The owner group.
        group: usize,
        /// The coalition.
        coalition: Coalition,
    },
    /// Nobody may take the place of clients who stay away.
    #[error(
        "awaiting {} of clients {}: nobody else may take their place",
        if *any { "any one" } else { "all" },
        Names(*clients)
    )]
    Awaiting {
        /// Who is awaited.
        clients: Coalition,
        /// Whether one of them is enough; otherwise all of them have to return.
        any: bool,
    },
    /// Even with every client present, too few own no sample of the batch and do not know the model.
    #[error(
        "round {round}, coalition {}: only clients {} neither own a sample of the batch nor know the model, \
         too few for the network's layers",
        Names(*coalition),
        Names(*eligible)
    )]
    NobodyLeft {
        /// The round.
        round: RoundId,
        /// The coalition.
        coalition: Coalition,
        /// Who could have been chosen from.
        eligible: Coalition,
    },
    /// The replies of a round to one client would let it compute the output of its own model.
    #[error("round {round}, group {group}: this reply gives client {client} the output of its own model")]
    Span {
        /// The round.
        round: RoundId,
        /// The owner group.
        group: usize,
        /// The client.
        client: usize,
    },
}

/// Clients by position, for messages.
pub(super) struct Names(pub Coalition);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.members()).finish()
    }
}
