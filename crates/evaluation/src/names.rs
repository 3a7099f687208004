//! Clients by their ids, where a role that knows numbers alone has said something.

use secsv_federation::FederationSpec;

/// How a role calls a client, before its number counted from 1.
const CLIENT: &str = "client ";

/// A sentence of a role with ids instead of numbers: `client 2` becomes the second client's id.
pub fn with_ids(text: &str, spec: &FederationSpec) -> String {
    let mut named = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find(CLIENT) {
        let (before, after) = rest.split_at(place);
        named.push_str(before);
        let digits = after[CLIENT.len()..].bytes().take_while(u8::is_ascii_digit).count();
        let (number, behind) = after[CLIENT.len()..].split_at(digits);
        let position = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        match position.and_then(|position| spec.clients.get(position)) {
            Some(client) => named.push_str(client.id.as_str()),
            None => named.extend([CLIENT, number]),
        }
        rest = behind;
    }
    named + rest
}

#[cfg(test)]
mod tests {
    use secsv_federation::{ClientId, ClientSpec, ModelSpec};

    use super::*;

    #[test]
    fn clients_are_called_by_their_ids() {
        let client = |id| ClientSpec::new(ClientId::new(id).unwrap(), 1.0);
        let model = ModelSpec::new(vec![1], 2, Vec::<secsv_federation::LayerSpec>::new());
        let clients = ["north", "south"].map(client).to_vec();
        let spec = FederationSpec::new("two".into(), 1, model, clients);
        for (said, named) in [
            ("client hello from client 2 is not expected", "client hello from south is not expected"),
            ("introductions of client 1, client 2", "introductions of north, south"),
            ("client 3 and client 21 and client 0", "client 3 and client 21 and client 0"),
            ("a client", "a client"),
        ] {
            assert_eq!(with_ids(said, &spec), named);
        }
    }
}
