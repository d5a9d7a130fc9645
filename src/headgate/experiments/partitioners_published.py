"""The published producer benchmark (E-5) as data: mean and half-width of each 99 % interval, tables 7.1 to 7.18.

Two nodes, a hundred million records of 100 bytes. Percentiles of tables in `DOUBTFUL` contradict their own averages
(A-1): no mean can lie above the one that these percentiles allow. Throughput, average and time are to be trusted.
"""

from dataclasses import dataclass

from headgate.experiments.intervals import Interval

RECORDS = 100_000_000
ACKS = {"s": "all", "a": "1", "-": ""}
"""Without replicas the paper does not tell acknowledgements apart."""

_TABLES = """
7.1  default-rr B1 - 62.48±1.93  116.99±22.33   1.78±0.25      688.67±132.52   1347.44±185.04 1732.39±227.7   2571 12008.24±929.84  154.50±4.95
7.2  default-rr B2 s 15.79±2.78  1917.82±187.27 1617.50±569.39 2667.90±573.58  3418.95±673.82 4356.25±689.85  6624 23077.06±1466.67 638.20±61.77
7.3  default-rr B2 a 37.61±1.73  641.77±81.38   425.65±205.02  1294.15±98.17   1872.45±279.23 2431.15±343.65  3736 17516.85±1686.3  256.60±13.28
7.4  default-rr U1 - 63.17±2.39  116.70±28.38   3.44±2.49      685.83±107.49   1163.50±139.5  1531.56±224.12  2725 11683.05±1611.66 152.72±6.09
7.5  default-rr U2 s 13.61±0.53  2117.20±78.04  2992.94±268.27 4070.72±112.07  4833.50±125.33 5667.39±393.66  7780 41934.19±1415.07 704.94±25.32
7.6  default-rr U2 a 44.82±3.92  402.23±131.47  255.42±173.26  1079.32±92.24   1633.32±172.04 3605.47±1116.68 8243 16402.79±3189.05 219.74±22.59
7.7  node       B1 - 60.69±1.59  131.79±21.53   2.10±0.6       765.20±124.33   1411.60±184.9  1844.95±200.87  2641 12461.02±933.53  158.90±4.38
7.8  node       B2 s 14.17±0.1   2027.04±14.28  1690±520.67    2707.60±543.86  3630.25±625.79 4610.50±585.18  7197 24560.92±885.31  674.40±4.57
7.9  node       B2 a 39.01±1.82  577.65±82.81   489.75±206.99  1356.25±140.57  1965.45±269.34 2557.40±326.73  4273 16930.01±2348.74 247.20±10.24
7.10 node       U1 - 59.95±3.91  161.30±64.06   2.20±0.36      435.20±214.23   1194.47±397.94 1483.60±370.4   2564 11465.13±1795.26 162±11.49
7.11 node       U2 s 15.52±0.07  1847.48±8.27   16.40±0.4      406.70±90.57    1159.90±74.18  1641.30±127.34  6442 29475.75±2216.13 615.80±2.84
7.12 node       U2 a 41.67±0.36  651.79±13.98   3±0            218±41.17       706.33±115.12  1045.11±153.35  3400 18045.37±1588.78 230.33±1.86
7.13 sqf        B1 - 61.99±1.71  122.42±18.45   2±0.36         741.70±92.14    1347.25±157.88 1832.50±206.73  2996 11491.45±1013.02 155.60±4.48
7.14 sqf        B2 s 14.12±0.08  2035.37±11.58  1923.15±484.68 3428.55±470.65  4300.20±594.83 5176.35±579.1   7543 24120.92±1004.59 676.90±3.79
7.15 sqf        B2 a 38.48±1.31  610±80.95      488.60±179.89  1324±73.34      2090.50±198.07 2522.70±212.3   3581 17204.29±2266.42 250±8.14
7.16 sqf        U1 - 54.65±3.26  291.27±90.09   2±0            228.40±75.46    749.05±183.02  1213.80±277.9   3104 18139.45±4889.33 177.75±10.79
7.17 sqf        U2 s 15.45±0.26  1857.56±30.47  16.75±0.76     2397.25±1343.23 3068±1329.72   3759.88±1541.39 6040 29973.12±2646.13 618.75±10.08
7.18 sqf        U2 a 42.06±0.82  630.82±46.04   3±0            258.25±85.52    684.85±149.93  1312.85±577.26  5715 17948.38±1187.67 228.25±4.03
"""  # noqa: E501
DOUBTFUL = frozenset({"7.11", "7.12", "7.16", "7.17", "7.18"})


@dataclass(frozen=True, slots=True)
class Published:
    table: str
    partitioner: str
    scenario: str
    acks: str
    """`1`, `all`, or empty where the paper makes no difference."""
    mib_per_s: Interval
    avg_ms: Interval
    p50_ms: Interval
    p95_ms: Interval
    p99_ms: Interval
    p999_ms: Interval
    max_ms: float
    io_ns: Interval
    """Named I/O latency there; by its size the Java client's own time for a turn of its selector (A-6)."""
    seconds: Interval

    @property
    def highest_mean_ms(self) -> float:
        """What the average can be at most if the percentiles are those of all records (A-1)."""
        between = (self.p50_ms.mean, self.p95_ms.mean, self.p99_ms.mean, self.p999_ms.mean, self.max_ms)
        return sum(share * ms for share, ms in zip((0.5, 0.45, 0.04, 0.009, 0.001), between, strict=True))


def _published(line: str) -> Published:
    table, partitioner, scenario, acks, mib, avg, p50, p95, p99, p999, most, io, seconds = line.split()
    return Published(
        table,
        partitioner,
        scenario,
        ACKS[acks],
        _interval(mib),
        _interval(avg),
        _interval(p50),
        _interval(p95),
        _interval(p99),
        _interval(p999),
        float(most),
        _interval(io),
        _interval(seconds),
    )


def _interval(text: str) -> Interval:
    mean, half = text.split("±")
    return Interval(float(mean), float(half))


PUBLISHED = tuple(map(_published, _TABLES.strip().splitlines()))


def published(scenario: str, acks: str, partitioner: str) -> Published | None:
    """None where there is no table. Improved has none: as default-rr, with narrower intervals."""
    for row in PUBLISHED:
        if (row.scenario, row.partitioner) == (scenario, partitioner) and row.acks in ("", acks):
            return row
    return None
