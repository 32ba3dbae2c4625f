//! One real Apache Kafka for whoever wants to try gatelog on it: prints `<host>:<port> <directory>` as its first line,
//! and lives until its standard input ends or it is told to stop. It leaves nothing behind, however it ends.
//!
//! `cargo run -p gatelog-kafka-broker`
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that talks to whoever started it")]

use std::io::{Read, Write};
use std::process::ExitCode;

use gatelog_kafka_broker::Broker;

fn main() -> ExitCode {
    let broker = match Broker::start() {
        Ok(broker) => broker,
        Err(why) => {
            eprintln!("no broker: {why}");
            return ExitCode::FAILURE;
        }
    };
    println!("{} {}", broker.brokers(), broker.dir().display());
    if std::io::stdout().flush().is_err() {
        return ExitCode::FAILURE;
    }
    let mut ignored = [0; 4_096];
    let mut input = std::io::stdin().lock();
    loop {
        match input.read(&mut ignored) {
            Ok(0) => return ExitCode::SUCCESS,
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return ExitCode::FAILURE,
            Ok(_) | Err(_) => {}
        }
    }
}
