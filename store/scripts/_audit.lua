-- _audit: the audit of a conversation, and the revision of its approvals.
-- include: _clock.lua
-- include: _log.lua
-- include: _sha256.lua

-- Writes one entry about some actions, chained to the entry before, in canonical JSON (RFC 8785); see `store/approvals/audit.py`.
-- actor, reason: canonical JSON. time: UTC text with Z; an entry is never before the one that it follows, though their
-- workers' clocks may differ. edited: digest of edited arguments, nil where none are.
local function write_audit(decision, actions, actor, reason, time, edited)
  local key = root .. ':audit'
  local last = redis.call('LINDEX', key, -1)
  local previous, seq = last and string.match(last, '"hash":"(%x+)"') or '', redis.call('LLEN', key) + 1
  local earliest = last and string.match(last, '"time":"([^"]+)"}$') or ''
  if time < earliest then time = earliest end
  local names, digests = {}, {}
  for i, action in ipairs(actions) do names[i], digests[i] = action.name, '"' .. action.digest .. '"' end
  local head = '{"action_ids":[' .. table.concat(names, ',') .. '],"actor":' .. actor .. ',"conversation_id":"' ..
    string.match(root, '{(.-)}') .. '","decision":"' .. decision .. '","digests":[' .. table.concat(digests, ',') .. ']'
  if edited then head = head .. ',"edited":["' .. edited .. '"]' end
  local tail = '"previous":"' .. previous .. '","reason":' .. reason .. ',"seq":' .. string.format('%d', seq) ..
    ',"time":"' .. time .. '"}'
  local hash = sha256(head .. ',' .. tail)
  redis.call('RPUSH', key, head .. ',"hash":"' .. hash .. '",' .. tail)
end

-- Notes that the pending actions or the audit have changed: the revision of the approvals grows, also from one
-- incarnation of the conversation to the next.
local function change_approvals()
  local before = tonumber(redis.call('HGET', root, 'approvals') or 0)
  log.approvals = true
  redis.call('HSET', root, 'approvals', string.format('%.0f', math.max(tonumber(now), before + 1)))
end
