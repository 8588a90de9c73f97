"""`python -m provider_agent` is `souk-agent`."""

from provider_agent.cli import main

if __name__ == "__main__":
    main()
