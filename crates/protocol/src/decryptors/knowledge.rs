//! Models a client has without being told.

use secsv_federation::Coalition;

/// Whether a client knows a coalition's model, because it trained in the round.
///
/// Everybody knows the model before the round (the empty coalition) and after it (all participants). A
/// participant also knows its own model and, by subtraction, the one of all others. An owner tests the models it
/// knows on its own samples in the clear; elsewhere it never decrypts for them.
pub fn knows(client: usize, coalition: Coalition, participants: Coalition) -> bool {
    let own = Coalition::EMPTY.with(client);
    coalition.is_empty()
        || coalition == participants
        || participants.contains(client) && (coalition == own || coalition == participants.without(client))
}

/// Those of the clients who know the model.
pub fn knowing(clients: Coalition, coalition: Coalition, participants: Coalition) -> Coalition {
    clients.members().filter(|&client| knows(client, coalition, participants)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_knows_what() {
        let participants: Coalition = [0, 1, 3].into_iter().collect();
        let everyone = Coalition::first(4);
        let knowing = |members: &[usize]| {
            let coalition = members.iter().copied().collect();
            knowing(everyone, coalition, participants).members().collect::<Vec<_>>()
        };
        assert_eq!(knowing(&[]), [0, 1, 2, 3]);
        assert_eq!(knowing(&[0, 1, 3]), [0, 1, 2, 3]);
        assert_eq!(knowing(&[1]), [1]);
        assert_eq!(knowing(&[0, 3]), [1]);
    }

    #[test]
    fn two_participants_know_each_other() {
        let participants: Coalition = [0, 2].into_iter().collect();
        let known = knowing(Coalition::first(4), Coalition::EMPTY.with(0), participants);
        assert_eq!(known, participants);
    }
}
