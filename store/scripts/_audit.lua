-- _audit: the audit of a conversation, and the revision of its approvals.
-- include: _clock.lua
-- include: _log.lua
-- include: _sha256.lua

local MOST_SHOWN = 20 -- actions of one entry that it describes in words: hashing costs by the byte
local MOST_TOLD = 10 -- actions of one message to followers: an id may have 4 KiB
local ESCAPES = {['"'] = '\\"', ['\\'] = '\\\\', ['\b'] = '\\b', ['\t'] = '\\t', ['\n'] = '\\n', ['\f'] = '\\f', ['\r'] = '\\r'}

-- The canonical JSON of the conversation's title; nil where it has none.
local function canonical_title()
  local title = cjson.decode(redis.call('HGET', root, 'title') or 'null')
  return type(title) == 'string' and '"' .. string.gsub(title, '[%z\1-\31"\\]', function(character)
    return ESCAPES[character] or string.format('\\u%04x', string.byte(character))
  end) .. '"' or nil
end

-- What the first actions were, in words, as a JSON list; null for an action of an earlier release.
local function shown_of(actions)
  local shown = {}
  for i = 1, math.min(#actions, MOST_SHOWN) do shown[i] = actions[i].shown or 'null' end
  return '[' .. table.concat(shown, ',') .. ']'
end

-- Keeps where the entry of each action is, for those who read it beside the action.
local function note_decided(actions, seq)
  local entries = {}
  for _, action in ipairs(actions) do entries[#entries + 1], entries[#entries + 2] = action.id, seq end
  call_with_all('HSET', root .. ':decided', entries)
end

-- Tells the followers who decided, without the address: MOST_TOLD actions at once, as channels have no bound of their own.
local function tell_decided(decision, names, actor, reason, seq, time, edited_shown)
  local who = string.gsub(actor, '^{"address":".-","kind"', '{"kind"')
  for first = 1, #names, MOST_TOLD do
    local some = table.concat(names, ',', first, math.min(first + MOST_TOLD - 1, #names))
    redis.call('PUBLISH', root .. ':signal', '{"action_ids":[' .. some .. '],"actor":' .. who .. ',"decision":"' ..
      decision .. '"' .. edited_shown .. ',"id":"decision-' .. seq .. '-' .. first .. '","reason":' .. reason .. ',"seq":' .. seq ..
      ',"source":"environment","time":"' .. time .. '","timestamp":"' .. string.sub(time, 1, -2) ..
      '","kind":"DecisionEvent"}')
  end
end

-- Writes one entry about some actions, chained to the entry before, in canonical JSON (RFC 8785); see `store/approvals/audit.py`.
-- actor, reason: canonical JSON. time: UTC text with Z; an entry is never before the one that it follows, though their
-- workers' clocks may differ. edited: digest of edited arguments, nil where none are; edited_shown: canonical JSON of what
-- they are in words. agreed: canonical JSON of the names of all who approved it so far, where several must; needed: how
-- many that are, of an approval that is not the last.
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
  if needed then return end -- nothing is decided by it
  note_decided(actions, string.format('%d', seq))
  tell_decided(decision, names, actor, reason, string.format('%d', seq), time, told)
end

-- Notes that the pending actions or the audit have changed: the revision of the approvals grows, also from one
-- incarnation of the conversation to the next.
local function change_approvals()
  local before = tonumber(redis.call('HGET', root, 'approvals') or 0)
  log.approvals = true
  redis.call('HSET', root, 'approvals', string.format('%.0f', math.max(tonumber(now), before + 1)))
end
