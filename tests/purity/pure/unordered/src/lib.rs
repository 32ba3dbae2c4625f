//! Depends on the order of a map that has none.

pub fn first(map: std::collections::HashMap<u8, u8>, set: std::collections::HashSet<u8>) -> Option<u8> {
    map.into_keys().chain(set).next()
}
