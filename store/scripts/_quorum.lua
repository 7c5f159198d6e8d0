-- _quorum: actions that several people must approve, according to the rules that the caller has read. read is {version
-- = of the rules, owner, asker = of the conversation, actions = by id {since, needed, own = whether the voter may not
-- approve it, rules, standing = voters of its record with a valid right, votes = all of its voters}}; without `actions`
-- no rule asks. A record's votes are ballots, as in `decide_pending.lua`.
-- include: _decisions.lua
-- include: _rights.lua

-- Returns whether the votes have changed since. A vote whose right has ended may have been replaced.
local function are_others(read, votes)
  for i = 1, math.max(#read, #votes) do
    if read[i] ~= (votes[i] or {}).voter then return true end
  end
  return false
end

-- Returns whether the data that the caller has read are outdated.
local function is_outdated(read, actions)
  if not read then return #actions > 0 end
  local version = elsewhere('{rules}:version')
  if version ~= nil and version ~= read.version then return true end
  if not read.actions then return false end
  local here = redis.call('HMGET', root, 'owner', 'asker')
  if (here[1] or '') ~= read.owner or (here[2] or '') ~= read.asker then return true end
  for _, action in ipairs(actions) do
    local held = read.actions[action.id]
    if not held or held.since ~= action.since or are_others(held.votes, action.votes or {}) then return true end
  end
  return false
end

local function held_by(read, action)
  local held = read and read.actions and read.actions[action.id]
  return held and (held.needed > 1 or held.own) and held or nil
end

-- Returns the votes of an action that still count.
local function standing_votes(action, held)
  local stands, votes = {}, {}
  for _, one in ipairs(held.standing) do stands[one] = true end
  for _, vote in ipairs(action.votes or {}) do
    if stands[vote.voter] then votes[#votes + 1] = vote end
  end
  return votes
end

-- Returns why an approval of an action is impossible; nil if it is possible.
local function problem_of_vote(read, action, voter)
  local held = held_by(read, action)
  if not held then return nil end
  if voter.voter == '' then return 'needs_people' end
  if held.own then return 'own' end
  for _, vote in ipairs(standing_votes(action, held)) do
    if vote.voter == voter.voter then return 'voted' end
  end
  return nil
end

-- Counts an approval. Returns whether it approves the action; otherwise its record keeps the vote, which is audited.
local function vote(read, action, voter, by)
  local held = held_by(read, action)
  if not held or held.needed < 2 then return true end
  local votes, names = standing_votes(action, held), {}
  votes[#votes + 1] = voter
  for i, one in ipairs(votes) do names[i] = one.name end
  action.agreed = names
  if #votes >= held.needed then return true end
  action.votes, action.agreed = votes, nil
  keep_action(action)
  write_audit('agree', {action}, by.actor, by.said, by.time, nil, nil, names, held.needed)
  return false
end
