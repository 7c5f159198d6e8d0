-- _pairs: the "KIND:SOURCE" sorted sets that a filter selects.
-- Kind and source are escaped, or "*", which selects all and equals no escaped name. A score is µs or "-inf", and "("
-- µs (exclusive) or "+inf".
-- Shape  event_filter(kind:text source:text lowest:score highest:score)

local function matching_pairs(kind, source)
  if kind ~= '*' and source ~= '*' then return {kind .. ':' .. source} end
  local stored = redis.call('SMEMBERS', root .. ':pairs')
  if kind == '*' and source == '*' then return stored end
  local matching = {}
  for _, pair in ipairs(stored) do
    local colon = string.find(pair, ':', 1, true)
    if (kind == '*' or string.sub(pair, 1, colon - 1) == kind)
      and (source == '*' or string.sub(pair, colon + 1) == source) then
      matching[#matching + 1] = pair
    end
  end
  return matching
end
