//! The whole program from outside, one file per room.

mod lab;
