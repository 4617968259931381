//! What the rooms do together, seen from outside: one binary, so that it links once.

mod lab;
mod load;
