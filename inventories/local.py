"""This machine, as the embedded default: no GPU is needed, and the small GPT trains on its CPUs."""

local = (
    ["@local"],
    {
        "gpu": "cpu",
        "smoke": {"recipe": "gpt-small"},
    },
)
