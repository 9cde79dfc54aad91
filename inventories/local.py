"""This machine, as the embedded default: no GPU is needed, and the small GPT trains on its CPUs."""

local = (
    ["@local"],
    {
        "gpu": "cpu",
        "smoke": {
            "recipe": "gpt-small",
            "steady": False,  # other programs take turns on the cores of this machine
        },
    },
)
