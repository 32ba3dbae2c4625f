//! Which of several Fuel takes where any will do: the first of a set of Python 2, whose order follows from hashes.

/// The hash of a text, 64 bits, without a seed.
fn hash(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let Some(first) = bytes.first() else { return 0 };
    let mut hash = u64::from(*first) << 7;
    for byte in bytes {
        hash = hash.wrapping_mul(1_000_003) ^ u64::from(*byte);
    }
    hash ^ bytes.len() as u64
}

/// A set as Python 2.7 keeps it: open addressing in a table that grows to four times what is in it.
struct Table<'t> {
    slots: Vec<Option<&'t str>>,
    used: usize,
}

impl<'t> Table<'t> {
    fn add(&mut self, text: &'t str) {
        self.place(text);
        self.used += 1;
        if self.used * 3 >= self.slots.len() * 2 {
            let mut size = 8;
            while size <= self.used * 4 {
                size *= 2;
            }
            let old = std::mem::replace(&mut self.slots, vec![None; size]);
            for text in old.into_iter().flatten() {
                self.place(text);
            }
        }
    }

    fn place(&mut self, text: &'t str) {
        let mask = self.slots.len() as u64 - 1;
        let mut perturb = hash(text);
        let mut at = perturb & mask;
        loop {
            let slot = usize::try_from(at & mask).unwrap_or(0);
            if self.slots[slot].is_none() {
                self.slots[slot] = Some(text);
                return;
            }
            at = at.wrapping_mul(5).wrapping_add(perturb).wrapping_add(1);
            perturb >>= 5;
        }
    }
}

/// The first of some texts, as a set of them is walked.
pub fn first(texts: &[String]) -> Option<String> {
    let mut table = Table { slots: vec![None; 8], used: 0 };
    for text in texts {
        table.add(text);
    }
    table.slots.iter().flatten().next().map(|text| (*text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_are_walked_as_python_walks_them() {
        let of = |texts: &[&str]| first(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()).unwrap();
        assert_eq!(of(&["1", "2", "3", "4"]), "1");
        assert_eq!(of(&["2", "3"]), "3");
        assert_eq!(of(&["4", "5"]), "5");
    }
}
