// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";

import {EscrowFunds} from "./EscrowFunds.sol";

/// @title Credits: bought into one pool, paid out of it by cumulative Merkle roots.
/// @dev A root says what every account has been promised since the beginning; a claim pays what is new of it.
/// A root opens after a delay in which it can be vetoed, and none promises more than the pool holds.
abstract contract EscrowCredits is EscrowFunds {
    uint64 public immutable rootDelaySeconds;
    uint256 public immutable rootDailyCap;

    /// @notice What each account has been paid since the beginning.
    mapping(address account => uint256 amount) public claimed;
    uint256 public claimedTotal;

    bytes32 private _activeRoot;
    uint256 private _activeTotal;
    bytes32 private _nextRoot;
    uint256 private _nextTotal;
    uint64 private _nextActiveAt;
    uint64 private _growthDay;
    uint256 private _growth;

    constructor(Terms memory terms) {
        _checkPeriod(terms.rootDelaySeconds);
        rootDelaySeconds = terms.rootDelaySeconds;
        rootDailyCap = terms.rootDailyCap;
    }

    /// @notice Buy credit for an account of the marketplace.
    /// @dev Reverts with NotAllowed for the zero account, ZeroAmount, UnexpectedBalance, EnforcedPause.
    function buyCredits(bytes32 account, uint256 amount) external nonReentrant whenNotPaused {
        _buyCredits(account, amount);
    }

    /// @notice Buy credit, allowed by the caller's own signed permit.
    /// @dev Reverts as `buyCredits` does, and as the token does without an allowance.
    function buyCreditsWithPermit(
        bytes32 account,
        uint256 amount,
        uint256 deadline,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external nonReentrant whenNotPaused {
        _tryPermit(amount, deadline, v, r, s);
        _buyCredits(account, amount);
    }

    /// @notice Propose what everybody has been promised so far; it opens for claims after the delay.
    /// @dev Reverts with NotAllowed for the zero root, RootPending while another waits, SumMismatch when the total
    /// shrinks, ExceedsDailyCap by its growth in a UTC day, ExceedsCredits when the pool does not cover it,
    /// EnforcedPause.
    function proposeRoot(
        bytes32 root,
        uint256 total
    ) external nonReentrant whenNotPaused onlyRole(PUBLISHER) {
        if (root == bytes32(0)) revert NotAllowed();
        if (_nextActiveAt != 0 && block.timestamp < _nextActiveAt) revert RootPending();
        _activate();
        if (total < _activeTotal) revert SumMismatch();
        uint64 today = uint64(block.timestamp / 1 days);
        if (today != _growthDay) {
            _growthDay = today;
            _growth = 0;
        }
        uint256 growth = total - _activeTotal;
        if (growth > rootDailyCap || _growth > rootDailyCap - growth) revert ExceedsDailyCap();
        if (total - claimedTotal > creditPool) revert ExceedsCredits();
        _growth += growth;
        _nextRoot = root;
        _nextTotal = total;
        _nextActiveAt = uint64(block.timestamp) + rootDelaySeconds;
        emit RootProposed(root, total, _nextActiveAt);
    }

    /// @notice Drop the proposed root before it opens; its growth no longer counts for its day.
    /// @dev Reverts with NotAllowed unless the arbiter or the pauser calls, TooLate when none waits. Never paused.
    function vetoRoot() external nonReentrant {
        if (!hasRole(ARBITER, msg.sender) && !hasRole(PAUSER, msg.sender)) revert NotAllowed();
        if (block.timestamp >= _nextActiveAt) revert TooLate();
        bytes32 root = _nextRoot;
        _growth -= _nextTotal - _activeTotal;
        _clearNext();
        emit RootVetoed(root);
    }

    /// @notice Pay an account what the open root promises it beyond what it was paid; anybody may call.
    /// @dev Reverts with BadProof, NothingToClaim, ExceedsCredits when a root's leaves add up to more than its total.
    /// Never paused.
    function claim(address account, uint256 cumulative, bytes32[] calldata proof) external nonReentrant {
        if (_nextActiveAt != 0 && block.timestamp >= _nextActiveAt) _activate();
        bytes32 leaf = keccak256(
            bytes.concat(keccak256(abi.encode(block.chainid, address(this), address(token), account, cumulative)))
        );
        if (!MerkleProof.verifyCalldata(proof, _activeRoot, leaf)) revert BadProof();
        if (cumulative <= claimed[account]) revert NothingToClaim();
        uint256 amount = cumulative - claimed[account];
        if (amount > _activeTotal - claimedTotal) revert ExceedsCredits();

        claimed[account] = cumulative;
        claimedTotal += amount;
        creditPool -= amount;
        emit Claimed(account, amount, cumulative);
        _send(account, amount);
    }

    /// @notice The root that is open for claims now; zero before the first.
    function activeRoot() external view returns (bytes32 root, uint256 total) {
        if (_nextActiveAt != 0 && block.timestamp >= _nextActiveAt) return (_nextRoot, _nextTotal);
        return (_activeRoot, _activeTotal);
    }

    /// @notice The root that waits; zeros where none does.
    function proposedRoot() external view returns (bytes32 root, uint256 total, uint64 activeAt) {
        if (block.timestamp < _nextActiveAt) return (_nextRoot, _nextTotal, _nextActiveAt);
    }

    function _buyCredits(bytes32 account, uint256 amount) private {
        if (account == bytes32(0)) revert NotAllowed();
        uint256 received = _receive(amount);
        creditPool += received;
        emit CreditsBought(account, msg.sender, received);
    }

    function _activate() private {
        if (_nextActiveAt == 0) return;
        _activeRoot = _nextRoot;
        _activeTotal = _nextTotal;
        _clearNext();
    }

    function _clearNext() private {
        delete _nextRoot;
        delete _nextTotal;
        delete _nextActiveAt;
    }
}
