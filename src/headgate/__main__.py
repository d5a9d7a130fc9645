"""`python -m headgate` is the `headgate` program."""

from headgate.cli.main import main

main()
