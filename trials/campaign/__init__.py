"""The campaign: real trials of the most promising plans, until the best is known. No torch here."""

from trials.campaign.export import export_study
from trials.campaign.run import run
from trials.campaign.state import CampaignSettings, CampaignState, CampaignTrial, RankedPlan
from trials.campaign.steps import begin, learn, propose, submitted

__all__ = [
    "CampaignSettings",
    "CampaignState",
    "CampaignTrial",
    "RankedPlan",
    "begin",
    "export_study",
    "learn",
    "propose",
    "run",
    "submitted",
]
