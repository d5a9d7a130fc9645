from headgate.kafka.local_ports import free_ports


def free_port() -> int:
    """Not one that the system may hand to an outgoing connection before a server has taken it."""
    return free_ports(1)
