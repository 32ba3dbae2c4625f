//! Messages of the SSH agent protocol (draft-ietf-sshm-ssh-agent), as far as [`crate::agent_proxy`] must understand them.
//!
//! A message is a number that says its kind, and fields; most fields are strings with their length before them. What is
//! not understood to its last byte is not handed on: an agent might read it in another way than the proxy has.

/// The answers that say yes and no.
pub(crate) const SUCCESS: u8 = 6;
pub(crate) const FAILURE: u8 = 5;
pub(crate) const REQUEST_IDENTITIES: u8 = 11;
pub(crate) const IDENTITIES: u8 = 12;
pub(crate) const SIGN_REQUEST: u8 = 13;
pub(crate) const ADD_IDENTITY: u8 = 17;
pub(crate) const REMOVE_IDENTITY: u8 = 18;
pub(crate) const REMOVE_ALL: u8 = 19;
pub(crate) const ADD_CONSTRAINED: u8 = 25;
/// The constraint that a key is forgotten after so many seconds.
const LIFETIME: u8 = 1;

/// What an agent may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    List,
    Sign,
    Add,
    Remove,
    RemoveAll,
}

impl Request {
    /// What a message asks for. `None`: for something that no build may have, or it is not well-formed.
    pub(crate) fn of(message: &[u8]) -> Option<Request> {
        let (kind, mut rest) = message.split_first()?;
        match *kind {
            REQUEST_IDENTITIES if rest.is_empty() => Some(Request::List),
            SIGN_REQUEST => {
                // The key, the data, and four bytes of flags.
                string(&mut rest)?;
                string(&mut rest)?;
                (rest.len() == 4).then_some(Request::Sign)
            }
            ADD_IDENTITY => added(rest)?.is_empty().then_some(Request::Add),
            ADD_CONSTRAINED => only_lifetimes(added(rest)?).then_some(Request::Add),
            REMOVE_IDENTITY => {
                string(&mut rest)?;
                rest.is_empty().then_some(Request::Remove)
            }
            REMOVE_ALL if rest.is_empty() => Some(Request::RemoveAll),
            _ => None,
        }
    }
}

/// Takes a string with its length before it.
fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (text, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(text)
}

/// What stands behind the private key and its comment. `None`: a kind of key that builds do not have. Keys on hardware
/// are among those: for them an agent starts programs and loads libraries.
fn added(mut rest: &[u8]) -> Option<&[u8]> {
    let fields = match string(&mut rest)? {
        b"ssh-rsa" => 6,
        b"ssh-rsa-cert-v01@openssh.com" => 5,
        b"ssh-ed25519" => 2,
        b"ssh-ed25519-cert-v01@openssh.com" => 3,
        b"ecdsa-sha2-nistp256" | b"ecdsa-sha2-nistp384" | b"ecdsa-sha2-nistp521" => 3,
        b"ecdsa-sha2-nistp256-cert-v01@openssh.com"
        | b"ecdsa-sha2-nistp384-cert-v01@openssh.com"
        | b"ecdsa-sha2-nistp521-cert-v01@openssh.com" => 2,
        _ => return None,
    };
    // After them the comment.
    for _ in 0..=fields {
        string(&mut rest)?;
    }
    Some(rest)
}

/// Whether nothing but lifetimes stands here. A key whose use somebody has to confirm could never be used, and the agent
/// would start a program on this host to ask; extensions tie a key to hosts, or name a library.
fn only_lifetimes(mut rest: &[u8]) -> bool {
    while let Some((kind, after)) = rest.split_first() {
        match after.split_at_checked(size_of::<u32>()) {
            Some((_, after)) if *kind == LIFETIME => rest = after,
            _ => return false,
        }
    }
    true
}

/// What an agent holds: how many keys, and the public half and comment of each, as it has written them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) count: u32,
    pub(crate) entries: Vec<u8>,
}

impl Listing {
    /// From an agent's answer; `None`: it is none.
    pub(crate) fn read(answer: &[u8]) -> Option<Listing> {
        let (count, entries) = answer.strip_prefix(&[IDENTITIES])?.split_first_chunk()?;
        Some(Listing { count: u32::from_be_bytes(*count), entries: entries.to_vec() })
    }

    /// These, and behind them others.
    pub(crate) fn and(mut self, others: Listing) -> Listing {
        self.count = self.count.saturating_add(others.count);
        self.entries.extend(others.entries);
        self
    }

    /// As an answer.
    pub(crate) fn answer(&self) -> Vec<u8> {
        [&[IDENTITIES][..], &self.count.to_be_bytes(), &self.entries].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&str]) -> Vec<u8> {
        let one = |text: &&str| [&u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat();
        texts.iter().flat_map(one).collect()
    }

    type Parts<'a> = &'a [&'a dyn AsRef<[u8]>];

    fn message(kind: u8, parts: Parts<'_>) -> Option<Request> {
        let mut message = vec![kind];
        parts.iter().for_each(|part| message.extend_from_slice(part.as_ref()));
        Request::of(&message)
    }

    #[test]
    fn what_a_build_needs_is_understood_and_nothing_else() {
        let key = strings(&["ssh-ed25519", "public", "private", "comment"]);
        let rsa = strings(&["ssh-rsa", "n", "e", "d", "i", "p", "q", "comment"]);
        let elliptic = strings(&["ecdsa-sha2-nistp256-cert-v01@openssh.com", "certificate", "d", "comment"]);
        let hardware = strings(&["sk-ssh-ed25519@openssh.com", "public", "ssh:", "handle", "", "comment"]);
        let blob = strings(&["key"]);
        let lifetime = [1, 0, 0, 0, 60];
        let provider = [&[255][..], &strings(&["sk-provider@openssh.com", "/tmp/evil.so"])].concat();
        // A text that ends as if it were a lifetime.
        let disguised = [&[255][..], &strings(&["sk-provider@openssh.com", "x\u{1}\0\0\0\u{1}"])].concat();
        let cases: [(u8, Parts<'_>, Option<Request>); 28] = [
            (11, &[], Some(Request::List)),
            (11, &[b"more"], None),
            (13, &[&strings(&["key", "data"]), &[0; 4]], Some(Request::Sign)),
            (13, &[&blob], None),
            (17, &[&key], Some(Request::Add)),
            (17, &[&rsa], Some(Request::Add)),
            (17, &[&elliptic], Some(Request::Add)),
            (17, &[&key, &lifetime], None),
            (17, &[&hardware], None),
            (17, &[b"\xff\xff\xff\xff"], None),
            (17, &[], None),
            (25, &[&key], Some(Request::Add)),
            (25, &[&key, &lifetime], Some(Request::Add)),
            (25, &[&key, &[2]], None),
            (25, &[&key, &[1, 0]], None),
            (25, &[&key, &lifetime, &provider], None),
            (25, &[&key, &disguised], None),
            (18, &[&blob], Some(Request::Remove)),
            (18, &[&blob, b"x"], None),
            (19, &[], Some(Request::RemoveAll)),
            // Smartcards, locks, extensions, and what SSH 1 had.
            (20, &[&strings(&["reader", "pin"])], None),
            (21, &[&strings(&["reader", "pin"])], None),
            (22, &[&strings(&["password"])], None),
            (23, &[&strings(&["password"])], None),
            (26, &[&strings(&["reader", "pin"])], None),
            (27, &[&strings(&["session-bind@openssh.com"])], None),
            (9, &[], None),
            (0, &[], None),
        ];
        for (at, (kind, parts, expected)) in cases.into_iter().enumerate() {
            assert_eq!(message(kind, parts), expected, "case {at}, of kind {kind}");
        }
        assert_eq!(Request::of(&[]), None);
    }

    #[test]
    fn lists_are_put_together() {
        let list = |text: &str| Listing { count: 1, entries: strings(&[text, "comment"]) };
        let both = list("one").and(list("two"));
        assert_eq!(both.count, 2);
        assert_eq!(Listing::read(&both.answer()), Some(both));
        assert_eq!(Listing::read(&[FAILURE]), None);
        assert_eq!(Listing::read(&[IDENTITIES, 0]), None);
    }
}
