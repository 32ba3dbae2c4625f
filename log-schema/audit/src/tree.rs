//! The tree over a partition's events, as RFC 6962 has it: leaf hashes begin with a zero byte, nodes with a one.

use gatelog_record::{ActorId, ChainLink, Envelope, EventRecord, KindVersion, Timestamp};
use sha2::{Digest, Sha256};

/// A node of the tree.
pub type Hash = [u8; 32];

/// No tree is higher: 2^62 events.
pub const MAX_LEVEL: u32 = 62;

/// What the tree says of one event: all by which events are chosen, and the link, which stands for its content and all
/// before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The event's sequence.
    pub sequence: u64,
    /// When it was decided.
    pub recorded_at: Timestamp,
    /// What kind of event it is.
    pub kind_version: KindVersion,
    /// Who asked.
    pub actor: ActorId,
    /// Its key: of the gate, the tenant.
    pub key: String,
    /// Its link.
    pub link: ChainLink,
}

impl Leaf {
    /// The leaf of an event that was read, with its link.
    pub fn of(event: &EventRecord, link: ChainLink) -> Leaf {
        Leaf {
            sequence: event.sequence,
            recorded_at: event.recorded_at,
            kind_version: event.event.kind_version(),
            actor: event.actor,
            key: event.key.clone(),
            link,
        }
    }

    /// The leaf of an event whose body is closed, with its link.
    pub fn of_envelope(envelope: &Envelope, link: ChainLink) -> Leaf {
        Leaf {
            sequence: envelope.sequence,
            recorded_at: envelope.recorded_at,
            kind_version: envelope.kind_version,
            actor: envelope.actor,
            key: envelope.key.clone(),
            link,
        }
    }

    /// Its hash.
    pub fn hash(&self) -> Hash {
        let mut hash = Sha256::new();
        hash.update([0]);
        hash.update(self.sequence.to_le_bytes());
        hash.update(self.recorded_at.0.to_le_bytes());
        hash.update(self.kind_version.kind.to_le_bytes());
        hash.update(self.kind_version.version.to_le_bytes());
        hash.update(self.actor.0);
        hash.update((self.key.len() as u64).to_le_bytes());
        hash.update(self.key.as_bytes());
        hash.update(self.link.0);
        hash.finalize().into()
    }
}

/// The node above two nodes.
fn above(left: &Hash, right: &Hash) -> Hash {
    let mut hash = Sha256::new();
    hash.update([1]);
    hash.update(left);
    hash.update(right);
    hash.finalize().into()
}

/// A part of the tree that begins at some event, as the fewest nodes that cover it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    end: u64,
    nodes: Vec<(u32, Hash)>,
}

impl Span {
    /// Nothing yet, after so many events.
    pub fn after(count: u64) -> Span {
        Span { end: count, nodes: Vec::new() }
    }

    /// How many events lie before its end, those before its beginning among them.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Its nodes from left to right: how high each stands (over 2^level events), and its hash.
    pub fn nodes(&self) -> &[(u32, Hash)] {
        &self.nodes
    }

    /// Goes on with a node over the next 2^level events. `None`, and nothing changes, when no node of that height can
    /// stand there.
    #[must_use]
    pub fn push(&mut self, level: u32, hash: Hash) -> Option<()> {
        let size = 1_u64.checked_shl(level).filter(|_| level <= MAX_LEVEL)?;
        if !self.end.is_multiple_of(size) {
            return None;
        }
        self.end = self.end.checked_add(size)?;
        let (mut level, mut hash) = (level, hash);
        while let Some((left_level, left)) = self.nodes.last() {
            // The two stand under one node only where that begins at a multiple of its size.
            if *left_level != level || level >= MAX_LEVEL || !self.end.is_multiple_of(1 << (level + 1)) {
                break;
            }
            hash = above(left, &hash);
            level += 1;
            self.nodes.pop();
        }
        self.nodes.push((level, hash));
        Some(())
    }
}

/// The tree over the first events of a partition, as the nodes it is made of: one for each bit of their number, the
/// highest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontier(Span);

impl Default for Frontier {
    fn default() -> Self {
        Frontier(Span::after(0))
    }
}

impl Frontier {
    /// The tree over so many events with these nodes; `None` when it cannot have as many.
    pub fn of(count: u64, nodes: Vec<Hash>) -> Option<Frontier> {
        if count.count_ones() as usize != nodes.len() || count >> MAX_LEVEL != 0 {
            return None;
        }
        let levels = (0..MAX_LEVEL).rev().filter(|level| count & (1 << level) != 0);
        Some(Frontier(Span { end: count, nodes: levels.zip(nodes).collect() }))
    }

    /// Over how many events it stands.
    pub fn count(&self) -> u64 {
        self.0.end()
    }

    /// Its nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Hash> {
        self.0.nodes.iter().map(|(_, hash)| hash)
    }

    /// Goes on; see [`Span::push`].
    #[must_use]
    pub fn push(&mut self, level: u32, hash: Hash) -> Option<()> {
        self.0.push(level, hash)
    }

    /// The root, as RFC 6962 has it; of no events, the hash of nothing.
    pub fn root(&self) -> Hash {
        let mut nodes = self.0.nodes.iter().rev().map(|(_, hash)| *hash);
        match nodes.next() {
            Some(first) => nodes.fold(first, |right, left| above(&left, &right)),
            None => Sha256::digest([]).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(number: u64) -> Hash {
        Sha256::digest(number.to_le_bytes()).into()
    }

    /// RFC 6962's definition, word for word.
    fn defined(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => Sha256::digest([]).into(),
            [one] => *one,
            more => {
                let half = more.len().next_power_of_two() / 2;
                above(&defined(&more[..half]), &defined(&more[half..]))
            }
        }
    }

    #[test]
    fn the_root_is_that_of_rfc_6962_however_the_tree_was_made() {
        let leaves: Vec<Hash> = (0..70).map(leaf).collect();
        let mut grown = Frontier::default();
        for count in 0..leaves.len() {
            assert_eq!(grown.root(), defined(&leaves[..count]), "{count} leaves");
            let again = Frontier::of(count as u64, grown.nodes().copied().collect()).unwrap();
            assert_eq!(again, grown);
            // In two parts, whatever the place between them.
            for split in 0..count {
                let mut first = Frontier::default();
                leaves[..split].iter().for_each(|leaf| first.push(0, *leaf).unwrap());
                let mut rest = Span::after(split as u64);
                leaves[split..count].iter().for_each(|leaf| rest.push(0, *leaf).unwrap());
                assert!(rest.nodes().len() <= 2 * 7, "few nodes");
                rest.nodes().iter().for_each(|(level, hash)| first.push(*level, *hash).unwrap());
                assert_eq!(first, grown);
            }
            grown.push(0, leaves[count]).unwrap();
        }
    }

    #[test]
    fn a_node_stands_only_where_one_of_its_height_can() {
        let mut tree = Frontier::default();
        tree.push(0, leaf(0)).unwrap();
        let before = tree.clone();
        for level in [1, 2, MAX_LEVEL, MAX_LEVEL + 1, 64, u32::MAX] {
            assert_eq!(tree.push(level, leaf(1)), None);
        }
        assert_eq!(tree, before);
        assert_eq!(Frontier::of(3, vec![leaf(0)]), None);
        assert_eq!(Frontier::of(u64::MAX, vec![leaf(0); 64]), None);
    }

    #[test]
    fn everything_a_leaf_says_counts() {
        let kind_version = KindVersion { kind: 1, version: 1 };
        let (actor, link) = (ActorId([1; 16]), ChainLink([2; 32]));
        let leaf = Leaf { sequence: 1, recorded_at: Timestamp(5), kind_version, actor, key: "a".into(), link };
        let others = [
            Leaf { sequence: 2, ..leaf.clone() },
            Leaf { recorded_at: Timestamp(6), ..leaf.clone() },
            Leaf { kind_version: KindVersion { kind: 2, version: 1 }, ..leaf.clone() },
            Leaf { kind_version: KindVersion { kind: 1, version: 2 }, ..leaf.clone() },
            Leaf { actor: ActorId([3; 16]), ..leaf.clone() },
            Leaf { key: "b".into(), ..leaf.clone() },
            Leaf { link: ChainLink([3; 32]), ..leaf.clone() },
        ];
        others.iter().for_each(|other| assert_ne!(other.hash(), leaf.hash(), "{other:?}"));
    }
}
