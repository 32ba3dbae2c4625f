//! What the gate decides. Pure.
