//! Holds the rules.
