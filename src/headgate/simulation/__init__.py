"""Load and consumer groups as pure functions of time, for choosing a policy and for driving a real broker. No I/O."""
