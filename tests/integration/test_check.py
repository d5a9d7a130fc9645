"""`headgate check --spark`: Spark itself says whether schema, where, sql and transform fit together."""

import subprocess
import sys
from pathlib import Path

PIPELINE = """\
name: shop
kafka: {brokers: "127.0.0.1:9"}
topics: [orders]
tables:
  - name: lake.large
    format: json
    schema: "id BIGINT, amount DOUBLE"
    where: "%s > 1000"
  - name: lake.taxed
    format: json
    schema: "id BIGINT, amount DOUBLE"
    sql: "SELECT *, amount * 0.19 AS tax FROM input"
  - name: lake.clean
    format: json
    schema: "id BIGINT, amount DOUBLE"
    transform: shop:clean
consumer:
  spark:
    conf: {spark.driver.extraJavaOptions: "-XX:+UseG1GC -Dshop.tax=0.19"}
"""
TRANSFORM = """\
def clean(records):
    java = records.sparkSession._jvm.java.lang
    told = java.System.getProperty("shop.tax"), java.System.getProperty("user.dir")  # the user's option, and ours
    if told[0] != "0.19" or "headgate-check-" not in told[1]:
        raise ValueError(str(told))
    return records.filter("amount IS NOT NULL")
"""
FITS = "schema, where, sql and transform fit together"


def checked(folder: Path, column: str) -> tuple[int, list[str], str]:
    """In a process of its own: it ends its Spark session, and a process has one."""
    (folder / "shop.py").write_text(TRANSFORM)
    file = folder / "shop.yaml"
    file.write_text(PIPELINE % column)
    done = subprocess.run(
        [sys.executable, "-m", "headgate.cli.main", "check", str(file), "--offline", "--spark"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines = done.stdout.splitlines()
    return done.returncode, [line for line in lines if line.split()[1] == "spark"], f"{lines[-1]}\n{done.stderr}"


def test_a_file_that_spark_can_put_together_passes(tmp_path: Path) -> None:
    code, said, rest = checked(tmp_path, "amount")
    assert code == 0, rest
    assert said == [f"ok       spark      {table}: {FITS}" for table in ("lake.large", "lake.taxed", "lake.clean")]
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix) == ["shop.py", "shop.yaml"]


def test_a_misspelt_column_fails_its_table_in_one_line_and_no_other(tmp_path: Path) -> None:
    code, (failed, *fine), rest = checked(tmp_path, "amonut")
    assert code == 1, rest
    assert failed.startswith("failed   spark      table lake.large: ")
    assert "`amonut`" in failed
    assert failed.endswith("; check where, sql and transform")
    assert fine == [f"ok       spark      {table}: {FITS}" for table in ("lake.taxed", "lake.clean")]
    assert "1 of " in rest
