//! The integration tests: one binary, one module per subject, each through a public interface.

mod support;

mod audit;
mod dialects;
mod compare;
mod docs;
mod durability;
mod hostile;
mod compat;
mod corpus;
mod http1;
mod full_disk;
mod interventions;
mod io_errors;
mod lab;
mod link;
mod load;
mod open_loop;
mod outputs;
mod peers;
mod power_loss;
mod reference;
mod register;
mod replica;
mod reports;
mod samplers;
mod selftest;
mod serve;
mod shards;
mod stores;
mod faults;
mod tidy;
mod usage;
mod verify;
mod workers;
mod workloads;
