// What a conversation has used, from the costs that its agent tells: tokens, and dollars.

const numberOf = (value) => (Number.isFinite(value) ? value : 0);

/**
 * {tokens, dollars} of all models together; null where nothing is told. stats: as the agent sent it, whatever that is.
 */
export function usageOf(stats) {
  const told = stats?.usage_to_metrics,
    all = told && typeof told === "object" ? Object.values(told) : [];
  if (!all.length) return null;
  const sum = (of) => all.reduce((total, one) => total + numberOf(of(one)), 0);
  return {
    tokens: sum(
      (one) =>
        numberOf(one?.accumulated_token_usage?.prompt_tokens) +
        numberOf(one?.accumulated_token_usage?.completion_tokens),
    ),
    dollars: sum((one) => one?.accumulated_cost),
  };
}
