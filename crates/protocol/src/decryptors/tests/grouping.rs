//! Owner groups and the attack table.

use super::*;

/// Every partition of the owners into groups of at most `most`, by the batches it needs.
fn fewest_batches(sizes: &[u64], most: usize, batch: u64) -> u64 {
    fn place(rest: &[u64], groups: &mut Vec<(usize, u64)>, most: usize, batch: u64) -> u64 {
        let Some((&size, rest)) = rest.split_first() else {
            return groups.iter().map(|&(_, samples)| samples.div_ceil(batch)).sum();
        };
        let mut best = u64::MAX;
        for group in 0..=groups.len() {
            if group == groups.len() {
                groups.push((0, 0));
            }
            if groups[group].0 < most {
                groups[group] = (groups[group].0 + 1, groups[group].1 + size);
                best = best.min(place(rest, groups, most, batch));
                groups[group] = (groups[group].0 - 1, groups[group].1 - size);
            }
        }
        groups.pop();
        best
    }
    let sizes: Vec<_> = sizes.iter().copied().filter(|&size| size > 0).collect();
    place(&sizes, &mut Vec::new(), most, batch)
}

proptest! {
    #[test]
    fn groups_are_a_partition_with_the_fewest_batches(
        sizes in prop::collection::vec(0u64..40, 4..8), network in networks(), batch in 1usize..30
    ) {
        let batch = NonZeroUsize::new(batch).unwrap();
        let most = max_owners(sizes.len(), network).unwrap();
        let groups = OwnerGroups::new(&sizes, network, batch).unwrap();
        let mut all = Coalition::EMPTY;
        for group in groups.iter() {
            prop_assert!(!group.owners().is_empty() && group.owners().len() <= most);
            prop_assert!(group.owners().intersection(all).is_empty());
            prop_assert_eq!(group.owners().members().map(|owner| sizes[owner]).sum::<u64>(), group.samples());
            all = all.union(group.owners());
        }
        prop_assert_eq!(all, (0..sizes.len()).filter(|&owner| sizes[owner] > 0).collect());
        prop_assert_eq!(groups.batches(batch), fewest_batches(&sizes, most, batch.get() as u64));
    }
}

#[test]
fn owners_stay_alone_unless_sharing_saves_a_batch() {
    let network = Network::feedforward(1).unwrap();
    let owners = |sizes: &[u64]| {
        let groups = OwnerGroups::new(sizes, network, NonZeroUsize::new(10).unwrap()).unwrap();
        groups.iter().map(|group| group.owners().members().collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    assert_eq!(owners(&[10, 20, 10, 30, 0, 0]), [[0], [1], [2], [3]]);
    assert_eq!(owners(&[6, 6, 6, 0, 0, 0]), [[0, 1, 2]]);
    assert_eq!(owners(&[4, 10, 16, 0]), [vec![0], vec![1], vec![2]]);
    assert_eq!(owners(&[4, 10, 16, 0, 0]), [vec![0, 2], vec![1]]);
    assert_eq!(owners(&[0, 0, 0, 0]), Vec::<Vec<usize>>::new());
}

#[test]
fn forty_owners_are_grouped() {
    let network = Network::feedforward(2).unwrap();
    let batch = NonZeroUsize::new(100).unwrap();
    let groups = OwnerGroups::new(&[25; 40], network, batch).unwrap();
    // Blocks of ten: 250 samples in three batches each.
    assert_eq!(groups.batches(batch), 12);
}

#[test]
fn the_number_of_owners_is_bounded() {
    let owners = |n, layers| max_owners(n, Network::feedforward(layers).unwrap());
    assert_eq!(owners(3, 1), Err(PlanError::TooFewClients { clients: 3 }));
    assert!(owners(2, 1).unwrap_err().to_string().contains("at least 4"));
    assert_eq!(owners(129, 1), Err(PlanError::TooManyClients { clients: 129, most: 128 }));
    assert_eq!([owners(4, 1), owners(4, 2), owners(4, 9), owners(10, 1)], [Ok(1), Ok(1), Ok(1), Ok(7)]);
    assert_eq!([owners(10, 3), owners(10, 8), owners(10, 9)], [Ok(6), Ok(1), Ok(7)]);
    let gru = |n, after| max_owners(n, Network::gru(9, after).unwrap());
    assert_eq!([gru(4, 1), gru(5, 1), gru(8, 1), gru(8, 0)], [Ok(1), Ok(1), Ok(4), Ok(5)]);
    assert_eq!(Network::feedforward(0), Err(PlanError::NoLayers));
    assert_eq!(Network::gru(0, 2), Err(PlanError::NoLayers));
}

#[test]
fn groups_made_for_a_shallower_network_are_refused() {
    let batch = NonZeroUsize::new(10).unwrap();
    let shallow = OwnerGroups::new(&[1, 1, 1, 0, 0, 0], Network::feedforward(1).unwrap(), batch).unwrap();
    let deep = Network::feedforward(4).unwrap();
    let refused = Planner::new(shallow, Protocol::SecSv, deep).unwrap_err();
    assert_eq!(refused, PlanError::GroupTooLarge { owners: 3, most: 1 });
}

#[test]
fn the_attack_table_says_what_holds() {
    let first_layer = FirstLayer { inputs: 20, outputs: 8 };
    let table = |n, network| {
        let participants = Coalition::first(n);
        let sizes = vec![5; n];
        let case = Case { sizes, protocol: Protocol::SecSv, network, participants, round: RoundId(1) };
        let mut planner = case.planner();
        for round in 1..=3 {
            for unit in (Case { round: RoundId(round), ..case.clone() }).units(&planner) {
                planner.assign(unit, Coalition::EMPTY).unwrap();
            }
        }
        planner.attacks(first_layer)
    };
    let excluded =
        |rows: &[AttackRow], attack| rows.iter().find(|row| row.attack == attack).unwrap().excluded;

    let rows = table(4, Network::feedforward(2).unwrap());
    assert_eq!(rows.len(), 7);
    assert!(rows.iter().all(|row| row.excluded == (row.attack != Attack::KnownModelBySubtraction)));
    let line = rows.last().unwrap().to_string();
    assert!(line.starts_with("known model by subtraction: NOT excluded; "), "{line}");
    assert!(line.contains("at most 24 equations beside 20 unknown features"), "{line}");

    let rows = table(4, Network::feedforward(3).unwrap());
    assert!(!excluded(&rows, Attack::MultiLayerEquationSolving));
    assert!(rows[1].to_string().ends_with("4 clients for 3 layers: at least 5 are needed"));

    assert!(!excluded(&table(4, Network::gru(4, 1).unwrap()), Attack::SingleLayerEquationSolving));
    let rows = table(6, Network::gru(9, 1).unwrap());
    assert!(excluded(&rows, Attack::SingleLayerEquationSolving));
    assert!(!excluded(&rows, Attack::MultiLayerEquationSolving));
}
