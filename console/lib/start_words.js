// What a start of a conversation is said to do.

/** The states of a start task in words; those that are passed without work are shown when they come. */
export const STATES = {
  WORKING: "Queued",
  WAITING_FOR_SANDBOX: "The sandbox starts",
  PREPARING_REPOSITORY: "The repository is cloned",
  RUNNING_SETUP_SCRIPT: "The setup script runs",
  SETTING_UP_GIT_HOOKS: "The Git hooks are set up",
  SETTING_UP_SKILLS: "The skills are set up",
  STARTING_CONVERSATION: "The agent begins the conversation",
  READY: "The agent is ready",
  ERROR: "The start failed",
};

/** What is done after the agent is ready, and what it is when it failed. */
export const STEPS = {
  model: ["The model is set", "the model was not set"],
  files: ["The files are uploaded", "not all files were uploaded"],
  message: ["The first message is sent", "the first message was not sent"],
};
