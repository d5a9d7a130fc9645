"""Closed forms for waiting times in the dispatch simulator (B-49)."""

import math


def mm1_wait_s(arrivals_per_s: float, service_per_s: float) -> float:
    """One queue, or N queues that jobs are split over at random: every one is an M/M/1 ("split")."""
    return arrivals_per_s / (service_per_s * (service_per_s - arrivals_per_s))


def pooled_wait_s(queues: int, arrivals_per_s: float, service_per_s: float) -> float:
    """One server N times as fast for the arrivals of all ("pooled"); not what N parallel queues can reach."""
    return mm1_wait_s(arrivals_per_s, service_per_s) / queues


def round_robin_wait_s(queues: int, arrivals_per_s: float, service_per_s: float) -> float:
    """Every N-th arrival: E_N/M/1, with σ the root of σ = (Nλ / (Nλ + μ(1 - σ)))^N below 1."""
    total = queues * arrivals_per_s
    sigma = 0.0
    for _ in range(100_000):
        after = (total / (total + service_per_s * (1 - sigma))) ** queues
        if abs(after - sigma) < 1e-15:
            break
        sigma = after
    return sigma / (service_per_s * (1 - sigma))


def mmn_wait_s(queues: int, arrivals_per_s: float, service_per_s: float) -> float:
    """One line for all (M/M/N, Erlang C): what JIQ reaches that holds jobs until a queue is idle."""
    offered = queues * arrivals_per_s / service_per_s
    below = sum(offered**k / math.factorial(k) for k in range(queues))
    last = offered**queues / math.factorial(queues) * queues / (queues - offered)
    return last / (below + last) / (queues * service_per_s - queues * arrivals_per_s)


def jsq_d_sojourn_s(d: int, arrivals_per_s: float, service_per_s: float) -> float:
    """JSQ(d) with endlessly many queues: Σ ρ^((d^i - d) / (d - 1)), waiting and work together."""
    load = arrivals_per_s / service_per_s
    if d == 1:
        return 1 / (service_per_s - arrivals_per_s)
    total, i = 0.0, 1
    while (term := load ** ((d**i - d) / (d - 1))) > 1e-16:
        total, i = total + term, i + 1
    return total / service_per_s
