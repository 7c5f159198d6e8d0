-- _audit: the audit of a conversation, and the revision of its approvals.
-- include: _clock.lua
-- include: _log.lua
-- include: _sha256.lua

local MOST_SHOWN = 20 -- maximum of described actions per entry: hashing costs time per byte
local MOST_PUBLISHED = 10 -- maximum of actions per message to followers: an id may have 4 KiB
local ESCAPES = {['"'] = '\\"', ['\\'] = '\\\\', ['\b'] = '\\b', ['\t'] = '\\t', ['\n'] = '\\n', ['\f'] = '\\f', ['\r'] = '\\r'}

-- Returns the conversation's title as canonical JSON; nil without a title.
local function canonical_title()
  local title = cjson.decode(redis.call('HGET', root, 'title') or 'null')
  return type(title) == 'string' and '"' .. string.gsub(title, '[%z\1-\31"\\]', function(character)
    return ESCAPES[character] or string.format('\\u%04x', string.byte(character))
  end) .. '"' or nil
end

-- Returns the descriptions of the first actions as a JSON list, with null for an action of an earlier release.
local function shown_of(actions)
  local shown = {}
  for i = 1, math.min(#actions, MOST_SHOWN) do shown[i] = actions[i].shown or 'null' end
  return '[' .. table.concat(shown, ',') .. ']'
end

-- Stores which entry belongs to each action, for readers of the actions.
local function note_decided(actions, seq)
  local entries = {}
  for _, action in ipairs(actions) do entries[#entries + 1], entries[#entries + 2] = action.id, seq end
  call_with_all('HSET', root .. ':decided', entries)
end

-- Publishes the decision to followers, without the address. A message has at most MOST_PUBLISHED actions, because channels
-- have no limit.
local function publish_decision(decision, names, actor, reason, seq, time, edited_shown)
  local who = string.gsub(actor, '^{"address":".-","kind"', '{"kind"')
  for first = 1, #names, MOST_PUBLISHED do
    local some = table.concat(names, ',', first, math.min(first + MOST_PUBLISHED - 1, #names))
    redis.call('PUBLISH', root .. ':signal', '{"action_ids":[' .. some .. '],"actor":' .. who .. ',"decision":"' ..
      decision .. '"' .. edited_shown .. ',"id":"decision-' .. seq .. '-' .. first .. '","reason":' .. reason .. ',"seq":' .. seq ..
      ',"source":"environment","time":"' .. time .. '","timestamp":"' .. string.sub(time, 1, -2) ..
      '","kind":"DecisionEvent"}')
  end
end

-- Writes an audit entry about actions in canonical JSON (RFC 8785), with the hash of the previous entry; see
-- `store/approvals/audit.py`. actor, reason: canonical JSON. time: UTC text with Z; raised to the previous entry's
-- time, because workers' clocks may differ. edited: digest of edited arguments, or nil; edited_shown: their description
-- as canonical JSON. agreed: names of all who have approved so far, as canonical JSON, if several must; needed: how
-- many must, for an approval that is not the last.
local function write_audit(decision, actions, actor, reason, time, edited, edited_shown, agreed, needed)
  local key = root .. ':audit'
  local last = redis.call('LINDEX', key, -1)
  local previous, seq = last and string.match(last, '"hash":"(%x+)"') or '', redis.call('LLEN', key) + 1
  local earliest = last and string.match(last, '"time":"([^"]+)"}$') or ''
  if time < earliest then time = earliest end
  local names, digests = {}, {}
  for i, action in ipairs(actions) do names[i], digests[i] = action.name, '"' .. action.digest .. '"' end
  local title = canonical_title()
  local head = '{"action_ids":[' .. table.concat(names, ',') .. '],"actor":' .. actor ..
    (agreed and ',"agreed":[' .. table.concat(agreed, ',') .. ']' or '') .. ',"conversation_id":"' ..
    string.match(root, '{(.-)}') .. '"' .. (title and ',"conversation_title":' .. title or '') ..
    ',"decision":"' .. decision .. '","digests":[' .. table.concat(digests, ',') .. ']'
  local told = edited_shown and ',"edited_shown":[' .. edited_shown .. ']' or ''
  if edited then head = head .. ',"edited":["' .. edited .. '"]' .. told end
  local tail = (needed and '"needed":' .. string.format('%d', needed) .. ',' or '') ..
    '"previous":"' .. previous .. '","reason":' .. reason .. ',"seq":' .. string.format('%d', seq) ..
    (#actions > 0 and ',"shown":' .. shown_of(actions) or '') .. ',"time":"' .. time .. '"}'
  local hash = sha256(head .. ',' .. tail)
  redis.call('RPUSH', key, head .. ',"hash":"' .. hash .. '",' .. tail)
  if needed then return end -- no decision yet
  note_decided(actions, string.format('%d', seq))
  publish_decision(decision, names, actor, reason, string.format('%d', seq), time, told)
end

-- Records that the pending actions or the audit have changed: raises the revision of the approvals, across incarnations
-- of the conversation.
local function change_approvals()
  local before = tonumber(redis.call('HGET', root, 'approvals') or 0)
  log.approvals = true
  redis.call('HSET', root, 'approvals', string.format('%.0f', math.max(tonumber(now), before + 1)))
end
