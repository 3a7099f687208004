//! Owner groups.

use super::*;

/// Every partition of the owners of a block, by the batches it needs.
fn fewest_batches(sizes: &[u64], batch: u64) -> u64 {
    fn place(rest: &[u64], groups: &mut Vec<u64>, batch: u64) -> u64 {
        let Some((&size, rest)) = rest.split_first() else {
            return groups.iter().map(|samples| samples.div_ceil(batch)).sum();
        };
        let mut best = u64::MAX;
        for group in 0..=groups.len() {
            if group == groups.len() {
                groups.push(0);
            }
            groups[group] += size;
            best = best.min(place(rest, groups, batch));
            groups[group] -= size;
        }
        groups.pop();
        best
    }
    let sizes: Vec<_> = sizes.iter().copied().filter(|&size| size > 0).collect();
    place(&sizes, &mut Vec::new(), batch)
}

proptest! {
    #[test]
    fn groups_are_a_partition_of_blocks_with_the_fewest_batches(
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
        let blocks = groups::blocks(sizes.len(), network).unwrap();
        let of_block = |block: &Coalition| {
            let sizes: Vec<_> = block.members().map(|client| sizes[client]).collect();
            fewest_batches(&sizes, batch.get() as u64)
        };
        prop_assert_eq!(groups.batches(batch), blocks.iter().map(of_block).sum::<u64>());
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
    assert_eq!(owners(&[10, 4, 16, 0, 0]), [vec![0], vec![1, 2]]);
    // Not of the same block: whoever decrypts for one of them may not be whoever decrypts for the other.
    assert_eq!(owners(&[4, 16, 10, 0, 0]), [vec![0], vec![1], vec![2]]);
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
